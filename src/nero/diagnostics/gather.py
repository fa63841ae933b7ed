"""The one communication of a report: numbers of neurons that lie on other ranks, or on several.

The order of numbers does not matter to their distribution. So ranks that hold different neurons of a
parameter write them into different places of one buffer, ranks that share neurons write into the same
place, and an all-reduce completes both: for all parameters at once, one per process group.

Imported only where parameters are sharded.
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


def gather(
    turns: Sequence[tuple[NamedNeurons, NeuronTurns]],
    counts: Sequence[tuple[NamedNeurons, Tensor]],
) -> tuple[list[tuple[NamedNeurons, NeuronTurns]], list[tuple[NamedNeurons, Tensor]]]:
    """Complete numbers that are split over ranks; all ranks bring the same parameters in the same order.

    The neurons come back in an order of their own, with gaps where ``present`` is zero.
    """
    buffers = [_placed(each, mine).flatten() for each, mine in turns]
    for each, count in counts:
        mine = count if _speaks_for_shared(each) else torch.zeros_like(count)
        buffers.append(mine.reshape(1).to(torch.float64))
    params = [each for each, _ in [*turns, *counts]]
    summed = all_reduce_flat(buffers, [_cutting(each.param) for each in params])
    complete = []
    for (each, _), buffer in zip(turns, summed, strict=False):
        all_turns = NeuronTurns._make(buffer.view(len(NeuronTurns._fields), -1))
        complete.append((each, with_shared_angles(all_turns) if _sharing(each) else all_turns))
    totals = summed[len(turns) :]
    return complete, [(each, total) for (each, _), total in zip(counts, totals, strict=True)]


def _placed(each: NamedNeurons, mine: NeuronTurns) -> Tensor:
    """Return a buffer with room for all neurons, and this rank's in their place."""
    param, neurons = each.param, each.neurons
    if not isinstance(param, DTensor):
        return torch.stack(mine)
    zeros = torch.zeros_like(mine.present)
    if not _speaks_for_shared(each):  # what is not a sum counts once
        mine = mine._replace(present=zeros, target=zeros)
    if _sharing(each):
        mine = mine._replace(angle=zeros)  # the angle of a part has no meaning
    mesh = param.device_mesh
    parts = dict.fromkeys(neurons.neuron_dims or (), 1)
    place = 0
    for mesh_dim, placement in enumerate(param.placements):
        dim = sharded_dim(placement, param.ndim)
        if dim in parts:
            parts[dim] *= mesh.size(mesh_dim)
            place = place * mesh.size(mesh_dim) + mesh.get_local_rank(mesh_dim)
    room = neurons.num_groups * math.prod(-(-param.shape[d] // n) for d, n in parts.items())
    columns = torch.stack(mine)
    buffer = columns.new_zeros(len(mine), math.prod(parts.values()), room)
    buffer[:, place, : columns.shape[1]] = columns
    return buffer


def _cutting(param: Tensor) -> list[MeshDim]:
    """Return the mesh dims that cut a parameter, whichever way."""
    return [(mesh, dim) for mesh, dim in sharded_mesh_dims(param) if mesh.size(dim) > 1]


def _sharing(each: NamedNeurons) -> tuple[MeshDim, ...]:
    """Return the mesh dims over which ranks share neurons."""
    return fan_in_mesh_dims(each.param, each.neurons)


def _speaks_for_shared(each: NamedNeurons) -> bool:
    """Tell whether this rank speaks for those with which it shares neurons."""
    return all(mesh.get_local_rank(dim) == 0 for mesh, dim in _sharing(each))
