"""Agree with the other ranks on who holds what, once, before the first step."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch.distributed as dist

from nero.distributed.flat.boxes import Piece, form_of

_ADVICE = "keep the engine's own layout of flat buffers, or use FSDP2 (torch.distributed.fsdp.fully_shard)"


class Plan(NamedTuple):
    """The slots in which a process group's ranks reduce the sums of shared neurons."""

    group: Any
    """The process group."""
    slots: dict[tuple[int, int], tuple[int, int]]
    """The slot of a shared block's first neuron, and the block's number among those that are shared; by its
    parameter's position and its index there."""
    num_slots: int
    may_lack_gradients: bool = False
    """Whether some ranks may have a gradient that others lack; ZeRO gives zeros instead."""


class Ranges(NamedTuple):
    """The parameter pieces in one of this rank's flat buffers, according to the engine."""

    pieces: Sequence[Piece]
    problem: str = ""
    """An error message if the engine's map is wrong, else an empty string."""


def agree(buffers: Sequence[Ranges], group: Any, *, may_lack_gradients: bool = False) -> list[Plan]:
    """Gather the ranges of all ranks, and check that they tile every parameter.

    All ranks of the group call this with the same buffers. All of them raise, or none.

    Args:
        buffers: this rank's part of each buffer.
        group: the process group over which the buffers are sharded.
        may_lack_gradients: whether some ranks may have a gradient that others lack.
    """
    mine = [
        ([(p.position, p.start, p.stop) for p in ranges.pieces if p.start < p.stop], ranges.problem)
        for ranges in buffers
    ]
    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, mine, group=group)
    problems = [problem for rank in every for _, problem in rank if problem]
    if problems:
        raise RuntimeError(problems[0])
    return [
        _plan(ranges.pieces, [parts for rank in every for parts in rank[i][0]])._replace(
            group=group, may_lack_gradients=may_lack_gradients
        )
        for i, ranges in enumerate(buffers)
    ]


def _plan(pieces: Sequence[Piece], parts: Sequence[tuple[int, int, int]]) -> Plan:
    """Make the plan of one buffer, given its parts (position, start, stop) on all ranks."""
    slots: dict[tuple[int, int], tuple[int, int]] = {}
    num_slots = 0
    for piece in pieces:
        ranges = sorted(
            (start, stop) for position, start, stop in parts if position == piece.position
        )
        _check_tiling(piece, ranges)
        form = form_of(piece.shape, piece.neurons)
        for edge in sorted({edge for part in ranges for edge in part}):
            block, rest = divmod(edge, form.block)
            if rest and (piece.position, block) not in slots:
                slots[piece.position, block] = num_slots, len(slots)
                num_slots += form.num_kept
    return Plan(None, slots, num_slots)


def _check_tiling(piece: Piece, ranges: Sequence[tuple[int, int]]) -> None:
    reached = 0
    for start, stop in ranges:
        if start != reached:
            break
        reached = stop
    if reached != piece.numel:
        raise RuntimeError(
            f"{piece.name} has {piece.numel} elements, but the ranks' ranges {ranges} do not cover it "
            f"exactly once; {_ADVICE}"
        )
