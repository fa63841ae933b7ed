"""The one communication of a report: numbers of neurons that lie on other ranks, or on several.

A distribution does not care for the order of its numbers. So every rank that cuts a parameter between
neurons writes its own into a place of its own of one buffer, ranks that share neurons write into the same
place, and an all-reduce makes both whole: of all parameters at once, one for each process group.

Imported only by those who have sharded parameters.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from nero.diagnostics.angle import NeuronTurns, with_shared_angles
from nero.distributed import fan_in_groups
from nero.distributed.add_up import MeshDim, add_up
from nero.distributed.shards import sharded_dim
from nero.layout import Layout


def gather(
    turns: Sequence[tuple[Tensor, Layout, NeuronTurns]],
    counts: Sequence[tuple[Tensor, Layout, Tensor]],
) -> tuple[list[NeuronTurns], list[Tensor]]:
    """Make numbers whole that are split over ranks; all ranks bring the same parameters in the same order.

    Args:
        turns: parameters, their layouts, and the numbers of the neurons that this rank has a part of.
        counts: parameters, their layouts, and one count of each.

    Returns:
        The numbers of all neurons, in an order of its own and with gaps where ``present`` is zero, and the
        counts.
    """
    buffers, where = [], []
    for param, layout, mine in turns:
        buffer = torch.stack(mine)
        if isinstance(param, DTensor):
            buffer = _placed(param, layout, mine)
        buffers.append(buffer.flatten())
        where.append(_cutting(param))
    for param, layout, count in counts:
        mine_counts = not isinstance(param, DTensor) or _is_first(param, layout)
        count = count if mine_counts else torch.zeros_like(count)
        buffers.append(count.reshape(1).to(torch.float64))
        where.append(_cutting(param))
    summed = add_up(buffers, where)
    whole = []
    for (param, layout, _), buffer in zip(turns, summed, strict=False):
        columns = buffer.view(len(NeuronTurns._fields), -1)
        every = NeuronTurns(*columns)
        is_shared = isinstance(param, DTensor) and fan_in_groups(param, layout)
        whole.append(with_shared_angles(every) if is_shared else every)
    return whole, summed[len(turns) :]


def _placed(param: DTensor, layout: Layout, mine: NeuronTurns) -> Tensor:
    """Return a buffer with room for all neurons, and this rank's in their place."""
    if not _is_first(param, layout):
        # What is no sum counts once.
        zeros = torch.zeros_like(mine.present)
        mine = mine._replace(present=zeros, target=zeros)
    if fan_in_groups(param, layout):
        mine = mine._replace(angle=torch.zeros_like(mine.angle))  # of a part: without meaning
    mesh = param.device_mesh
    parts = dict.fromkeys((d % param.ndim for d in layout.neuron_dims or ()), 1)
    place = 0
    for mesh_dim, placement in enumerate(param.placements):
        dim = sharded_dim(placement, param.ndim)
        if dim in parts:
            parts[dim] *= mesh.size(mesh_dim)
            place = place * mesh.size(mesh_dim) + mesh.get_local_rank(mesh_dim)
    room = layout.num_groups * math.prod(-(-param.shape[d] // n) for d, n in parts.items())
    columns = torch.stack(mine)
    buffer = columns.new_zeros(len(mine), math.prod(parts.values()), room)
    buffer[:, place, : columns.shape[1]] = columns
    return buffer


def _cutting(param: Tensor) -> list[MeshDim]:
    """Return the mesh dims that cut a parameter, whichever way."""
    if not isinstance(param, DTensor):
        return []
    return [
        (param.device_mesh, mesh_dim)
        for mesh_dim, placement in enumerate(param.placements)
        if sharded_dim(placement, param.ndim) is not None and param.device_mesh.size(mesh_dim) > 1
    ]


def _is_first(param: DTensor, layout: Layout) -> bool:
    """Tell whether this rank speaks for those with which it shares neurons."""
    return all(param.device_mesh.get_local_rank(d) == 0 for d in fan_in_groups(param, layout))
