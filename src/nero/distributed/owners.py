"""Directions that take a whole matrix to find: every sharded matrix has an owner, which finds its own.

Shards travel to the owners in one all-to-all per process group, and directions back in another, whatever
the number of matrices. A matrix that is cut over two mesh dims, as under FSDP and tensor parallelism, is
put together in two stages: over one group first, then among the ranks that hold the pieces.
"""

import math
from collections.abc import Sequence
from functools import reduce
from graphlib import TopologicalSorter
from itertools import combinations
from typing import Any, NamedTuple

import torch
import torch.distributed._functional_collectives as funcol
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from nero.core.directions import layer_direction
from nero.core.precision import working_dtype
from nero.core.update import Update
from nero.distributed.placement import sharded_dim

Shape = tuple[int, ...]


class Cut(NamedTuple):
    """A mesh dim, and the tensor dim that is cut over it."""

    mesh: DeviceMesh
    mesh_dim: int
    dim: int

    @property
    def group(self) -> str:
        """The name of the process group."""
        return str(self.mesh.get_group(self.mesh_dim).group_name)

    @property
    def size(self) -> int:
        """The number of parts."""
        return self.mesh.size(self.mesh_dim)

    @property
    def rank(self) -> int:
        """Which part is ours."""
        return self.mesh.get_local_rank(self.mesh_dim)


class Member(NamedTuple):
    """A matrix of which the ranks of a stage hold pieces."""

    place: int
    """Among the updates."""
    owner: int
    dim: int
    """The dim along which pieces are put together."""
    shapes: list[Shape]
    """Of the pieces, rank by rank."""

    @property
    def shape(self) -> Shape:
        """What the pieces make up together."""
        return _resized(self.shapes[0], self.dim, sum(self.lengths))

    @property
    def lengths(self) -> list[int]:
        """Of the pieces, along the dim that is cut."""
        return [shape[self.dim] for shape in self.shapes]


class Stage(NamedTuple):
    """An exchange over one process group: pieces go to their owners, and come back."""

    cut: Cut
    members: list[Member]

    def of(self, rank: int) -> list[Member]:
        """Return the matrices that a rank owns."""
        return [member for member in self.members if member.owner == rank]


def cuts_of(param: Tensor) -> list[Cut]:
    """Return how a parameter is cut, in the order of cutting.

    Mesh dims cut in their order. Only torch's strided shards, which FSDP makes on top of tensor
    parallelism, cut what that has left.
    """
    if not isinstance(param, DTensor):
        return []
    early: list[Cut] = []
    late: list[Cut] = []
    for mesh_dim, placement in enumerate(param.placements):
        dim = sharded_dim(placement, param.ndim)
        if dim is not None and param.device_mesh.size(mesh_dim) > 1:
            is_strided = hasattr(placement, "split_factor")
            (late if is_strided else early).append(Cut(param.device_mesh, mesh_dim, dim))
    return early + late


def sharded_directions(
    directions: Sequence[Tensor], updates: Sequence[Update]
) -> list[tuple[Tensor, Update]]:
    """Return this rank's parts of directions, and the updates that follow them.

    All ranks name the same matrices in the same order, with a gradient or without. One that has a gradient
    on some ranks only takes zeros for the others; one that has none anywhere gets a rate of zero.

    Args:
        directions: of each update, what this rank holds of the gradient or momentum buffer.
        updates: of parameters that are cut.
    """
    params: list[Any] = [update.whole for update in updates]
    stages = _stages(params)
    # Of the parameters, which all ranks share: a gradient may have another, or be missing here.
    dtype = _common_dtype(params)
    empty = directions[0].new_empty(0, dtype=dtype)
    held = {
        i: _packed(direction.to(dtype), direction.new_full((1,), update.has_grad, dtype=dtype))
        for i, (direction, update) in enumerate(zip(directions, updates, strict=True))
    }
    for stage in stages:
        held = _gather(stage, held, empty)
    for i, packed in held.items():
        neurons = updates[i].neurons
        exact = packed[:-1].view(params[i].shape).to(working_dtype(params[i].dtype))
        name = updates[i].hyper.direction
        held[i] = _packed(
            layer_direction(name, neurons.view(exact), neurons).to(dtype), packed[-1:]
        )
    for stage in reversed(stages):
        held = _scatter(stage, held, empty)
    found = []
    for i, (direction, update) in enumerate(zip(directions, updates, strict=True)):
        lr = update.lr
        if not isinstance(lr, Tensor):
            lr = held[i].new_full((), lr, dtype=torch.float64)
        lr = torch.where(held[i][-1] > 0, lr, 0.0)  # on how many ranks it has a gradient
        factor = held[i][:-1].view(direction.shape).to(working_dtype(params[i].dtype))
        # From here on the rate alone says whether anyone has a gradient.
        found.append((factor, update._replace(lr=lr, has_grad=True)))
    return found


def _stages(params: Sequence[Any]) -> list[Stage]:
    """Plan the exchanges: in each, matrices of which this rank holds a piece then, and their owners."""
    shapes = {i: tuple(param.to_local().shape) for i, param in enumerate(params)}  # of what we hold
    all_cuts = [cuts_of(param) for param in params]
    stages = []
    for cut in _in_order(all_cuts):
        stage, loads = Stage(cut, []), [0] * cut.size
        # The costliest first, each to the rank that has least to do.
        for i in sorted(shapes, key=lambda i: -params[i].numel()):
            cuts = all_cuts[i]
            depth = next((p for p, each in enumerate(cuts) if each.group == cut.group), None)
            if depth is None:
                continue
            dim, length = cuts[depth].dim, params[i].shape[cuts[depth].dim]
            for outer in cuts[:depth]:
                if outer.dim == dim:
                    length = _lengths(length, outer.size)[outer.rank]
            pieces = [_resized(shapes[i], dim, n) for n in _lengths(length, cut.size)]
            owner = loads.index(min(loads))
            loads[owner] += params[i].numel()
            stage.members.append(Member(i, owner, dim, pieces))
        for member in stage.members:
            del shapes[member.place]
            if member.owner == cut.rank:
                shapes[member.place] = member.shape
        stages.append(stage)
    return stages


def _in_order(all_cuts: Sequence[Sequence[Cut]]) -> list[Cut]:
    """Return every process group once, by one of its cuts; what was cut last comes first."""
    first: dict[str, Cut] = {}
    order: TopologicalSorter[str] = TopologicalSorter()
    for cuts in all_cuts:
        for cut in cuts:
            first.setdefault(cut.group, cut)
            order.add(cut.group)
        for outer, inner in combinations(cuts, 2):
            if outer.dim == inner.dim:
                order.add(outer.group, inner.group)
    return [first[group] for group in order.static_order()]


def _gather(stage: Stage, held: dict[int, Tensor], empty: Tensor) -> dict[int, Tensor]:
    """Send every piece to the owner of its matrix, and put together what this rank owns."""
    num_ranks, mine = stage.cut.size, stage.of(stage.cut.rank)
    sent = [[held[member.place] for member in stage.of(r)] for r in range(num_ranks)]
    sizes = [[math.prod(member.shapes[r]) + 1 for member in mine] for r in range(num_ranks)]
    received = _exchange(stage.cut, sent, sizes, empty)
    left = {member.place for member in stage.members}
    now = {i: packed for i, packed in held.items() if i not in left}
    for member, pieces in zip(mine, zip(*received, strict=True), strict=True):
        values = [p[:-1].view(shape) for p, shape in zip(pieces, member.shapes, strict=True)]
        count = torch.stack([p[-1:] for p in pieces]).sum(0)
        now[member.place] = _packed(torch.cat(values, member.dim), count)
    return now


def _scatter(stage: Stage, held: dict[int, Tensor], empty: Tensor) -> dict[int, Tensor]:
    """Send every part of what this rank owns back to where it came from."""
    num_ranks, rank = stage.cut.size, stage.cut.rank
    sent: list[list[Tensor]] = [[] for _ in range(num_ranks)]
    now = dict(held)
    for member in stage.of(rank):
        packed = now.pop(member.place)
        parts = packed[:-1].view(member.shape).split(member.lengths, member.dim)
        for r, part in enumerate(parts):
            sent[r].append(_packed(part, packed[-1:]))
    sizes = [
        [math.prod(member.shapes[rank]) + 1 for member in stage.of(r)] for r in range(num_ranks)
    ]
    received = _exchange(stage.cut, sent, sizes, empty)
    for r, pieces in enumerate(received):
        now |= zip([member.place for member in stage.of(r)], pieces, strict=True)
    return now


def _exchange(
    cut: Cut, sent: list[list[Tensor]], sizes: list[list[int]], empty: Tensor
) -> list[tuple[Tensor, ...]]:
    """Send a list of tensors to every rank of a group, and return what came from each, of these sizes."""
    flat = [torch.cat([empty, *parts]) for parts in sent]
    totals = [sum(each) for each in sizes]
    received = funcol.all_to_all_single(
        torch.cat(flat), totals, [part.numel() for part in flat], (cut.mesh, cut.mesh_dim)
    )
    parts = funcol.wait_tensor(received).split(totals)
    return [part.split(each) for part, each in zip(parts, sizes, strict=True)]


def _packed(values: Tensor, count: Tensor) -> Tensor:
    """Put values and the number of ranks that have a gradient into one flat tensor."""
    return torch.cat([values.flatten(), count])


def _resized(shape: Shape, dim: int, length: int) -> Shape:
    return (*shape[:dim], length, *shape[dim + 1 :])


def _lengths(length: int, num_parts: int) -> list[int]:
    each = -(-length // num_parts)
    return [max(min(each, length - r * each), 0) for r in range(num_parts)]


def _common_dtype(params: Sequence[Tensor]) -> torch.dtype:
    return reduce(torch.promote_types, [working_dtype(param.dtype) for param in params])
