"""Directions that depend on a whole matrix: every sharded matrix has an owner, a rank that computes its.

Shards go to the owners in one all-to-all per process group, and directions come back in another, for all
matrices at once. A matrix sharded over two mesh dims, as under FSDP with tensor parallelism, is assembled
in two stages: over one group first, then among the ranks that hold the pieces.
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

from nero.core.batches import batches_of, stacked, unstacked
from nero.core.directions import layer_direction
from nero.core.neurons import Neurons
from nero.core.precision import sum_dtype, working_dtype
from nero.core.update import Update
from nero.distributed.placement import sharded_dim

Shape = tuple[int, ...]


class Sharding(NamedTuple):
    """A mesh dim, and the tensor dim sharded over it."""

    mesh: DeviceMesh
    mesh_dim: int
    dim: int

    @property
    def group(self) -> str:
        """The name of the process group."""
        return str(self.mesh.get_group(self.mesh_dim).group_name)

    @property
    def size(self) -> int:
        """The number of shards."""
        return self.mesh.size(self.mesh_dim)

    @property
    def rank(self) -> int:
        """The index of this rank's shard."""
        return self.mesh.get_local_rank(self.mesh_dim)


class Member(NamedTuple):
    """A matrix whose pieces are on the ranks of a stage."""

    position: int
    """Its position among the updates."""
    owner: int
    dim: int
    """The dim along which pieces are concatenated."""
    shapes: list[Shape]
    """The shape of each rank's piece."""

    @property
    def shape(self) -> Shape:
        """The shape of all pieces together."""
        return _resized(self.shapes[0], self.dim, sum(self.lengths))

    @property
    def lengths(self) -> list[int]:
        """The length of each piece along the sharded dim."""
        return [shape[self.dim] for shape in self.shapes]


class Stage(NamedTuple):
    """An exchange over one process group: pieces go to their owners, and come back."""

    sharding: Sharding
    members: list[Member]

    def of(self, rank: int) -> list[Member]:
        """Return the matrices owned by a rank."""
        return [member for member in self.members if member.owner == rank]


def shardings_of(param: Tensor) -> list[Sharding]:
    """Return how a parameter is sharded, in the order in which mesh dims split it.

    That is their order in the mesh, except that torch's strided shards, which FSDP makes on top of tensor
    parallelism, come last.
    """
    if not isinstance(param, DTensor):
        return []
    early: list[Sharding] = []
    late: list[Sharding] = []
    for mesh_dim, placement in enumerate(param.placements):
        dim = sharded_dim(placement, param.ndim)
        if dim is not None and param.device_mesh.size(mesh_dim) > 1:
            is_strided = hasattr(placement, "split_factor")
            (late if is_strided else early).append(Sharding(param.device_mesh, mesh_dim, dim))
    return early + late


def cutting_shardings(param: Tensor, neurons: Neurons) -> list[Sharding]:
    """Return the shardings that take matrices apart.

    Those along a dim that only counts matrices, as expert parallelism makes them, give every rank whole
    matrices of its own.
    """
    counting = (neurons.neuron_dims or ())[:-1]
    return [sharding for sharding in shardings_of(param) if sharding.dim not in counting]


def sharded_directions(
    directions: Sequence[Tensor], updates: Sequence[Update]
) -> list[tuple[Tensor, Update]]:
    """Return this rank's shards of the directions, and the updates along them.

    All ranks pass the same matrices in the same order, with a gradient or without. A gradient that is
    missing on some ranks counts as zeros there; a matrix without any gradient gets a learning rate of zero.

    Args:
        directions: this rank's shard of each gradient or momentum buffer.
        updates: the updates of sharded parameters.
    """
    params: list[Any] = [update.whole for update in updates]
    stages = _stages(updates)
    # From the parameters, which all ranks have: a gradient may have another dtype, or be missing here.
    dtype = _common_dtype(params)
    empty = directions[0].new_empty(0, dtype=dtype)
    held = {
        i: _packed(direction.to(dtype), direction.new_full((1,), update.has_grad, dtype=dtype))
        for i, (direction, update) in enumerate(zip(directions, updates, strict=True))
    }
    shapes: dict[int, Shape] = {}
    for stage in stages:
        held = _gather(stage, held, empty)
        shapes |= {member.position: member.shape for member in stage.members}
    own = []
    for i, packed in held.items():
        exact = packed[:-1].view(shapes[i]).to(working_dtype(params[i].dtype))
        grad = updates[i].neurons.view(exact)
        own.append(updates[i]._replace(grad=grad, state={}, position=i))
    for batch in batches_of(own):
        together = stacked(batch)
        found = layer_direction(together.hyper.direction, together.grad, together.neurons)
        for update, layer in zip(batch, unstacked(found, batch), strict=True):
            i = update.position
            held[i] = _packed(layer.to(dtype), held[i][-1:])
    for stage in reversed(stages):
        held = _scatter(stage, held, empty)
    results = []
    for i, (direction, update) in enumerate(zip(directions, updates, strict=True)):
        lr = update.lr
        if not isinstance(lr, Tensor):
            lr = held[i].new_full((), lr, dtype=sum_dtype(held[i]))
        # From here on the learning rate alone says whether any rank has a gradient: the last entry counts
        # those that have one.
        lr = torch.where(held[i][-1] > 0, lr, 0.0)
        factor = held[i][:-1].view(direction.shape).to(working_dtype(params[i].dtype))
        results.append((factor, update._replace(lr=lr, has_grad=True)))
    return results


def _stages(updates: Sequence[Update]) -> list[Stage]:
    """Plan the exchanges, each with the matrices whose pieces this rank then holds, and their owners."""
    params: list[Any] = [update.whole for update in updates]
    shapes = {i: tuple(param.to_local().shape) for i, param in enumerate(params)}  # on this rank
    all_shardings = [cutting_shardings(u.whole, u.neurons) for u in updates]  # type: ignore[arg-type]
    stages = []
    for sharding in _in_order(all_shardings):
        stage, loads = Stage(sharding, []), [0] * sharding.size
        # Largest first, each to the rank with the least work.
        for i in sorted(shapes, key=lambda i: -params[i].numel()):
            shardings = all_shardings[i]
            groups = [inner.group for inner in shardings]
            if sharding.group not in groups:
                continue
            depth = groups.index(sharding.group)
            dim, length = shardings[depth].dim, params[i].shape[shardings[depth].dim]
            for outer in shardings[:depth]:
                if outer.dim == dim:
                    length = _lengths(length, outer.size)[outer.rank]
            pieces = [_resized(shapes[i], dim, n) for n in _lengths(length, sharding.size)]
            owner = loads.index(min(loads))
            loads[owner] += params[i].numel()
            stage.members.append(Member(i, owner, dim, pieces))
        for member in stage.members:
            del shapes[member.position]
            if member.owner == sharding.rank:
                shapes[member.position] = member.shape
        stages.append(stage)
    return stages


def _in_order(all_shardings: Sequence[Sequence[Sharding]]) -> list[Sharding]:
    """Return one sharding per process group; dims that were split last come first."""
    first: dict[str, Sharding] = {}
    order: TopologicalSorter[str] = TopologicalSorter()
    for shardings in all_shardings:
        for sharding in shardings:
            first.setdefault(sharding.group, sharding)
            order.add(sharding.group)
        for outer, inner in combinations(shardings, 2):
            if outer.dim == inner.dim:
                order.add(outer.group, inner.group)
    return [first[group] for group in order.static_order()]


def _gather(stage: Stage, held: dict[int, Tensor], empty: Tensor) -> dict[int, Tensor]:
    """Send every piece to the owner of its matrix, and assemble this rank's own matrices."""
    num_ranks, owned = stage.sharding.size, stage.of(stage.sharding.rank)
    sent = [[held[member.position] for member in stage.of(r)] for r in range(num_ranks)]
    sizes = [[math.prod(member.shapes[r]) + 1 for member in owned] for r in range(num_ranks)]
    received = _exchange(stage.sharding, sent, sizes, empty)
    left = {member.position for member in stage.members}
    now = {i: packed for i, packed in held.items() if i not in left}
    for member, pieces in zip(owned, zip(*received, strict=True), strict=True):
        values = [p[:-1].view(shape) for p, shape in zip(pieces, member.shapes, strict=True)]
        count = torch.stack([p[-1:] for p in pieces]).sum(0)
        now[member.position] = _packed(torch.cat(values, member.dim), count)
    return now


def _scatter(stage: Stage, held: dict[int, Tensor], empty: Tensor) -> dict[int, Tensor]:
    """Send the pieces of this rank's own matrices back to the ranks they came from."""
    num_ranks, rank = stage.sharding.size, stage.sharding.rank
    sent: list[list[Tensor]] = [[] for _ in range(num_ranks)]
    now = dict(held)
    for member in stage.of(rank):
        packed = now.pop(member.position)
        parts = packed[:-1].view(member.shape).split(member.lengths, member.dim)
        for r, part in enumerate(parts):
            sent[r].append(_packed(part, packed[-1:]))
    sizes = [
        [math.prod(member.shapes[rank]) + 1 for member in stage.of(r)] for r in range(num_ranks)
    ]
    received = _exchange(stage.sharding, sent, sizes, empty)
    for r, pieces in enumerate(received):
        now |= zip([member.position for member in stage.of(r)], pieces, strict=True)
    return now


def _exchange(
    sharding: Sharding, sent: list[list[Tensor]], sizes: list[list[int]], empty: Tensor
) -> list[tuple[Tensor, ...]]:
    """Send a list of tensors to every rank of a group, and return those received from each rank."""
    flat = [torch.cat([empty, *parts]) for parts in sent]
    totals = [sum(part_sizes) for part_sizes in sizes]
    received = funcol.all_to_all_single(
        torch.cat(flat), totals, [part.numel() for part in flat], (sharding.mesh, sharding.mesh_dim)
    )
    parts = funcol.wait_tensor(received).split(totals)
    return [part.split(part_sizes) for part, part_sizes in zip(parts, sizes, strict=True)]


def _packed(values: Tensor, count: Tensor) -> Tensor:
    """Put values and the number of ranks with a gradient into one flat tensor."""
    return torch.cat([values.flatten(), count])


def _resized(shape: Shape, dim: int, length: int) -> Shape:
    return (*shape[:dim], length, *shape[dim + 1 :])


def _lengths(length: int, num_parts: int) -> list[int]:
    full = -(-length // num_parts)
    return [max(min(full, length - r * full), 0) for r in range(num_parts)]


def _common_dtype(params: Sequence[Tensor]) -> torch.dtype:
    return reduce(torch.promote_types, [working_dtype(param.dtype) for param in params])
