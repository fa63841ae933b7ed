"""Combine placements with a layout: which neurons this rank holds, and over which ranks to reduce sums."""

from collections.abc import Iterable
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
    """Return the tensor dim that a placement shards, or ``None``.

    Reads the attribute, because torch's ``_StridedShard`` (FSDP on top of tensor parallelism) is not a
    subclass of ``Shard``.
    """
    dim = getattr(placement, "dim", None)
    return None if dim is None else dim % ndim


def sharded_mesh_dims(param: Tensor) -> tuple[MeshDim, ...]:
    """Return the mesh dims over which a parameter is sharded, for reductions over a whole layer."""
    if not isinstance(param, DTensor):
        return ()
    return tuple(
        (param.device_mesh, mesh_dim)
        for mesh_dim, placement in enumerate(param.placements)
        if sharded_dim(placement, param.ndim) is not None
    )


def fan_in_mesh_dims(param: Tensor, neurons: Neurons) -> tuple[MeshDim, ...]:
    """Return the mesh dims over which the fan-in is sharded, for reductions over each neuron."""
    if not isinstance(param, DTensor) or neurons.is_elementwise:
        return ()
    return tuple(
        (mesh, mesh_dim)
        for mesh, mesh_dim in sharded_mesh_dims(param)
        if mesh.size(mesh_dim) > 1
        and sharded_dim(param.placements[mesh_dim], param.ndim) not in (neurons.neuron_dims or ())
    )


def check_placements(param: DTensor, neurons: Neurons, name: str) -> None:
    """Raise if a parameter's placements are not supported."""
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
    """Return this rank's shards of a parameter and its gradient.

    A gradient with other placements is first redistributed, which communicates.
    """
    if not isinstance(param, DTensor):
        return param, grad
    if not isinstance(grad, DTensor):
        raise RuntimeError(
            f"{name} is sharded (a DTensor), but its gradient is a plain tensor; give it a gradient that "
            "is sharded in the same way, as autograd does"
        )
    if grad.placements != param.placements:
        grad = grad.redistribute(param.device_mesh, param.placements)
    return param.to_local(), grad.to_local()


def places_of(param: Tensor, neurons: Neurons) -> Places:
    """Return the offset and strides of this rank's shard in the full, contiguous parameter."""
    assert isinstance(param, DTensor)
    full = torch.empty(param.shape, device="meta")
    _, offsets = compute_local_shape_and_global_offset(
        param.shape, param.device_mesh, param.placements
    )
    start = sum(n * stride for n, stride in zip(offsets, full.stride(), strict=True))
    return Places(start, tuple(neurons.view(full).stride()))


def per_neuron(
    param: DTensor, neurons: Neurons, local: Tensor | None = None, **options: Any
) -> DTensor:
    """Make a DTensor with one number per neuron, which checkpoints can reshard.

    It is sharded as the neurons are, and replicated over ranks that hold parts of the same neurons.

    Args:
        param: the parameter.
        neurons: the neurons of the full parameter.
        local: this rank's shard; zeros by default.
        options: dtype and device of the zeros.
    """
    neuron_dims = neurons.neuron_dims or ()
    if local is None:
        sizes = [n if d in neuron_dims else 1 for d, n in enumerate(param.to_local().shape)]
        if neurons.num_groups > 1:
            sizes[0] = neurons.num_groups
        local = torch.zeros(sizes, **options)
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
        stride=torch.empty(shape, device="meta").stride(),
    )


def sharded_neuron_norm(param: DTensor, neurons: Neurons) -> DTensor:
    """Compute the norm of the finite weights of every neuron on this rank."""
    finite = finite_part(neurons.view(param.to_local()))
    norm = neuron_norm(finite, fan_in_dims=neurons.fan_in_dims)
    for mesh, mesh_dim in fan_in_mesh_dims(param, neurons):
        norm = all_reduce(norm.to(sum_dtype(norm)).square(), mesh, mesh_dim).sqrt()
    return per_neuron(param, neurons, norm.flatten(0, 1) if norm.ndim > param.ndim else norm)


def total_count(counts: Iterable[tuple[Tensor, Neurons, Tensor]]) -> int:
    """Sum counts of neurons over all ranks; all ranks must call this.

    Neurons on several ranks count once.
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
    for mesh, local_counts in by_mesh.items():
        summed = torch.stack(local_counts).sum()
        for mesh_dim in range(mesh.ndim):
            summed = all_reduce(summed, mesh, mesh_dim)
        total += int(summed)
    return total
