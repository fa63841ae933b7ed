"""Gather the numbers of sharded neurons, with one all-reduce per process group.

The order of numbers does not matter to their distribution. So ranks that hold different neurons of a
parameter write to different slots of one buffer, ranks that hold parts of the same neurons write to the
same slot, and one all-reduce completes both, for all parameters at once.

Imported only if parameters are sharded.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from nero.diagnostics.angle import NeuronTurns, with_shared_angles
from nero.diagnostics.neurons import NamedNeurons
from nero.distributed import fan_in_mesh_dims, sharded_mesh_dims
from nero.distributed.collectives import MeshDim, all_reduce_flat
from nero.distributed.placement import sharded_dim
from nero.functional import sum_dtype


def gather(
    turns: Sequence[tuple[NamedNeurons, NeuronTurns]],
    counts: Sequence[tuple[NamedNeurons, Tensor]],
) -> tuple[list[tuple[NamedNeurons, NeuronTurns]], list[tuple[NamedNeurons, Tensor]]]:
    """Sum per-neuron numbers across ranks; all ranks must pass the same parameters in the same order.

    The neurons come back in any order, with padding where ``present`` is zero.
    """
    buffers = [_slotted(layer, local).flatten() for layer, local in turns]
    for layer, count in counts:
        local = count if _is_first_of_shared(layer) else torch.zeros_like(count)
        buffers.append(local.reshape(1).to(sum_dtype(local)))
    params = [layer.param for layer, _ in [*turns, *counts]]
    summed = all_reduce_flat(buffers, [_mesh_dims(param) for param in params])
    complete = []
    for (layer, _), buffer in zip(turns, summed, strict=False):
        all_turns = NeuronTurns._make(buffer.view(len(NeuronTurns._fields), -1))
        is_shared = bool(fan_in_mesh_dims(layer.param, layer.neurons))
        complete.append((layer, with_shared_angles(all_turns) if is_shared else all_turns))
    totals = summed[len(turns) :]
    return complete, [(layer, total) for (layer, _), total in zip(counts, totals, strict=True)]


def _slotted(layer: NamedNeurons, local: NeuronTurns) -> Tensor:
    """Return a buffer with a slot per shard, zero except for this rank's slot."""
    param, neurons = layer.param, layer.neurons
    if not isinstance(param, DTensor):
        return torch.stack(local)
    zeros = torch.zeros_like(local.present)
    if not _is_first_of_shared(layer):  # fields that are not sums must count once
        local = local._replace(present=zeros, target=zeros)
    if fan_in_mesh_dims(param, neurons):
        local = local._replace(angle=zeros)  # the angle of a part has no meaning
    mesh = param.device_mesh
    num_shards = dict.fromkeys(neurons.neuron_dims or (), 1)
    slot = 0
    for mesh_dim, placement in enumerate(param.placements):
        dim = sharded_dim(placement, param.ndim)
        if dim in num_shards:
            num_shards[dim] *= mesh.size(mesh_dim)
            slot = slot * mesh.size(mesh_dim) + mesh.get_local_rank(mesh_dim)
    size = neurons.num_groups * math.prod(-(-param.shape[d] // n) for d, n in num_shards.items())
    columns = torch.stack(local)
    buffer = columns.new_zeros(len(local), math.prod(num_shards.values()), size)
    buffer[:, slot, : columns.shape[1]] = columns
    return buffer


def _mesh_dims(param: Tensor) -> list[MeshDim]:
    """Return the mesh dims of more than one rank over which a parameter is sharded."""
    return [(mesh, dim) for mesh, dim in sharded_mesh_dims(param) if mesh.size(dim) > 1]


def _is_first_of_shared(layer: NamedNeurons) -> bool:
    """Whether this rank is the first of those that hold parts of the same neurons."""
    mesh_dims = fan_in_mesh_dims(layer.param, layer.neurons)
    return all(mesh.get_local_rank(dim) == 0 for mesh, dim in mesh_dims)
