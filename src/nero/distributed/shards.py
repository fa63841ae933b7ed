"""Placements x layout -> what this rank holds of a parameter, and with whom it must add up sums."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.placement_types import Placement

from nero.distributed.add_up import all_reduce
from nero.functional import neuron_norm, sum_dtype
from nero.layout import Layout


def sharded_dim(placement: Placement, ndim: int) -> int | None:
    """Return the tensor dim that a placement cuts, or ``None``.

    Asked by attribute, because torch's strided shard (FSDP on top of tensor parallelism) is no subclass of
    its shard.
    """
    dim = getattr(placement, "dim", None)
    return None if dim is None else dim % ndim


def fan_in_groups(param: DTensor, layout: Layout) -> tuple[int, ...]:
    """Return the mesh dims over which the sums of this parameter's neurons must be added up."""
    if layout.is_elementwise(param.shape):
        return ()
    neuron_dims = _neuron_dims(param, layout)
    crossing = []
    for mesh_dim, placement in enumerate(param.placements):
        dim = sharded_dim(placement, param.ndim)
        if dim is None or param.device_mesh.size(mesh_dim) == 1:
            continue
        if dim not in neuron_dims:
            crossing.append(mesh_dim)
    return tuple(crossing)


def check_param(param: DTensor, layout: Layout, name: str) -> None:
    """Raise if the placements of a parameter leave no neurons, or cut what cannot be cut."""
    if any(placement.is_partial() for placement in param.placements):
        raise RuntimeError(
            f"{name} has a Partial placement: each rank holds a summand of it, and no neuron; "
            "redistribute it to Shard or Replicate"
        )
    dims = {sharded_dim(placement, param.ndim) for placement in param.placements}
    if layout.num_groups > 1 and 0 in dims:
        raise RuntimeError(
            f"{name} is a ConvTranspose with groups, and sharded on dim 0, which holds the inputs of "
            "all its groups; shard it on dim 1: fully_shard(..., shard_placement_fn=lambda param: Shard(1))"
        )


def local_work(param: Tensor, grad: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Return what this rank holds of a parameter and of its gradient.

    A gradient that is placed otherwise than its parameter is redistributed first, which communicates.
    """
    if not isinstance(param, DTensor):
        return param, grad
    if not isinstance(grad, DTensor):
        raise RuntimeError(
            f"{name} is sharded (a DTensor), but its gradient is a plain tensor; give it a gradient that "
            "is sharded alike, as torch's own engine does"
        )
    if grad.placements != param.placements:
        grad = grad.redistribute(param.device_mesh, param.placements)
    return param.to_local(), grad.to_local()


def per_neuron(
    param: DTensor, layout: Layout, local: Tensor | None = None, **options: Any
) -> DTensor:
    """Make a tensor of one number a neuron that checkpoints can reshard.

    It is sharded as the neurons are, and replicated over the ranks that share them.

    Args:
        param: whose neurons.
        layout: its layout.
        local: what this rank holds; zeros if it is left out.
        options: dtype and device of those zeros.
    """
    neuron_dims = _neuron_dims(param, layout)
    if local is None:
        mine = param.to_local().shape
        kept = [n if d in neuron_dims else 1 for d, n in enumerate(mine)]
        local = torch.zeros(
            [layout.num_groups, *kept[1:]] if layout.num_groups > 1 else kept, **options
        )
    placements = [
        p if sharded_dim(p, param.ndim) in neuron_dims else Replicate() for p in param.placements
    ]
    shape = layout.state_shape(param.shape)
    return DTensor.from_local(
        local,
        param.device_mesh,
        placements,
        run_check=False,
        shape=torch.Size(shape),
        stride=_contiguous_strides(shape),
    )


def neuron_norm_of(param: DTensor, layout: Layout) -> DTensor:
    """Compute the norm of every neuron that this rank has a part of."""
    norm = neuron_norm(layout.view(param.to_local()), fan_in_dims=layout.fan_in_dims(param.shape))
    for mesh_dim in fan_in_groups(param, layout):
        norm = all_reduce(norm.to(sum_dtype(norm)).square(), param.device_mesh, mesh_dim).sqrt()
    return per_neuron(param, layout, norm.flatten(0, 1) if norm.ndim > param.ndim else norm)


def _neuron_dims(param: DTensor, layout: Layout) -> set[int]:
    return {d % param.ndim for d in layout.neuron_dims or ()}


def total_count(counts: Iterable[tuple[Tensor, Layout, Tensor]]) -> int:
    """Add up what every rank has counted of its part of each parameter; all ranks must call this.

    What several ranks have counted, because they hold the same neurons, counts once.
    """
    total = 0
    by_mesh: dict[DeviceMesh, list[Tensor]] = {}
    for param, layout, count in counts:
        if not isinstance(param, DTensor):
            total += int(count)
            continue
        mesh = param.device_mesh
        shared = set(fan_in_groups(param, layout)) | {
            d for d, p in enumerate(param.placements) if sharded_dim(p, param.ndim) is None
        }
        is_first = all(mesh.get_local_rank(d) == 0 for d in shared)
        by_mesh.setdefault(mesh, []).append(count if is_first else torch.zeros_like(count))
    for mesh, mine in by_mesh.items():
        summed = torch.stack(mine).sum()
        for mesh_dim in range(mesh.ndim):
            summed = all_reduce(summed, mesh, mesh_dim)
        total += int(summed)
    return total


def _contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[Any] = [1]
    for n in reversed(shape[1:]):
        strides.insert(0, strides[0] * max(n, 1))
    return tuple(strides[: len(shape)])
