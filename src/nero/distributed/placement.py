"""Placements x layout -> what this rank holds of a parameter, and with whom it must add up sums."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import Placement

from nero.core.neurons import Neurons
from nero.core.precision import finite_part, sum_dtype
from nero.core.sphere import neuron_norm
from nero.core.update import Places
from nero.distributed.collectives import MeshDim, all_reduce


def sharded_dim(placement: Placement, ndim: int) -> int | None:
    """Return the tensor dim that a placement cuts, or ``None``.

    Asked by attribute, because torch's strided shard (FSDP on top of tensor parallelism) is no subclass of
    its shard.
    """
    dim = getattr(placement, "dim", None)
    return None if dim is None else dim % ndim


def sharded_mesh_dims(param: Tensor) -> tuple[MeshDim, ...]:
    """Return the mesh dims over which a parameter is cut: where the sums of a whole layer are added up."""
    if not isinstance(param, DTensor):
        return ()
    return tuple(
        (param.device_mesh, mesh_dim)
        for mesh_dim, placement in enumerate(param.placements)
        if sharded_dim(placement, param.ndim) is not None
    )


def fan_in_mesh_dims(param: Tensor, neurons: Neurons) -> tuple[MeshDim, ...]:
    """Return the mesh dims over which neurons are cut: where the sums of each are added up."""
    if not isinstance(param, DTensor) or neurons.is_elementwise:
        return ()
    return tuple(
        (mesh, mesh_dim)
        for mesh, mesh_dim in sharded_mesh_dims(param)
        if mesh.size(mesh_dim) > 1
        and sharded_dim(param.placements[mesh_dim], param.ndim) not in (neurons.neuron_dims or ())
    )


def check_placements(param: DTensor, neurons: Neurons, name: str) -> None:
    """Raise if the placements of a parameter leave no neurons, or cut what cannot be cut."""
    if any(placement.is_partial() for placement in param.placements):
        raise RuntimeError(
            f"{name} has a Partial placement: each rank holds a summand of it, and no neuron; "
            "redistribute it to Shard or Replicate"
        )
    dims = {sharded_dim(placement, param.ndim) for placement in param.placements}
    if neurons.num_groups > 1 and 0 in dims:
        raise RuntimeError(
            f"{name} is a ConvTranspose with groups, and sharded on dim 0, which holds the inputs of "
            "all its groups; shard it on dim 1: fully_shard(..., shard_placement_fn=lambda param: Shard(1))"
        )


def local_pair(param: Tensor, grad: Tensor, name: str) -> tuple[Tensor, Tensor]:
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


def places_of(param: Tensor, neurons: Neurons) -> Places:
    """Return where the elements that this rank holds lie in the whole parameter, by row-major position."""
    assert isinstance(param, DTensor)
    whole = torch.empty(param.shape, device="meta")
    _, offsets = compute_local_shape_and_global_offset(
        param.shape, param.device_mesh, param.placements
    )
    start = sum(n * stride for n, stride in zip(offsets, whole.stride(), strict=True))
    return Places(start, tuple(neurons.view(whole).stride()))


def per_neuron(
    param: DTensor, neurons: Neurons, local: Tensor | None = None, **options: Any
) -> DTensor:
    """Make a tensor of one number per neuron that checkpoints can reshard.

    It is sharded as the neurons are, and replicated over the ranks that share them.

    Args:
        param: whose neurons.
        neurons: as the whole parameter has them.
        local: what this rank holds; zeros if it is left out.
        options: dtype and device of those zeros.
    """
    neuron_dims = neurons.neuron_dims or ()
    if local is None:
        mine = param.to_local().shape
        kept = [n if d in neuron_dims else 1 for d, n in enumerate(mine)]
        if neurons.num_groups > 1:
            kept[0] = neurons.num_groups
        local = torch.zeros(kept, **options)
    placements = [
        p if sharded_dim(p, param.ndim) in neuron_dims else Replicate() for p in param.placements
    ]
    shape = neurons.state_shape
    return DTensor.from_local(
        local,
        param.device_mesh,
        placements,
        run_check=False,
        shape=torch.Size(shape),
        stride=_contiguous_strides(shape),
    )


def sharded_neuron_norm(param: DTensor, neurons: Neurons) -> DTensor:
    """Compute the norm of the finite weights of every neuron that this rank has a part of."""
    known = finite_part(neurons.view(param.to_local()))
    norm = neuron_norm(known, fan_in_dims=neurons.fan_in_dims)
    for mesh, mesh_dim in fan_in_mesh_dims(param, neurons):
        norm = all_reduce(norm.to(sum_dtype(norm)).square(), mesh, mesh_dim).sqrt()
    return per_neuron(param, neurons, norm.flatten(0, 1) if norm.ndim > param.ndim else norm)


def total_count(counts: Iterable[tuple[Tensor, Neurons, Tensor]]) -> int:
    """Add up what every rank has counted of its part of each parameter; all ranks must call this.

    What several ranks have counted, because they hold the same neurons, counts once.
    """
    total = 0
    by_mesh: dict[DeviceMesh, list[Tensor]] = {}
    for param, neurons, count in counts:
        if not isinstance(param, DTensor):
            total += int(count)
            continue
        mesh = param.device_mesh
        shared = {mesh_dim for _, mesh_dim in fan_in_mesh_dims(param, neurons)} | {
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
