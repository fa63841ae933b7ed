"""The step of flat ranges: sums of shared neurons, at most one all-reduce per process group, new rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from nero.backends import plain
from nero.core.finite import not_finite, raise_not_finite
from nero.core.gram import Gram, gram_keys
from nero.core.precision import sum_dtype, working_dtype
from nero.core.rule import Affine, Turn, turn_neurons
from nero.core.spec import Hyper
from nero.core.update import Update
from nero.distributed.collectives import all_reduce_over
from nero.distributed.flat.parts import Block, Part, Parts

_NUM_SUMS = len(gram_keys("wg"))


def step_(updates: Sequence[Update]) -> None:
    """Update, in place, the weights and state of flat ranges.

    All ranks pass the same buffers in the same order, with a gradient or without. A gradient missing on
    some ranks counts as zeros there; a parameter without any gradient does not change. With
    ``nonfinite="raise"``, all ranks raise or none, before anything changes.
    """
    groups: dict[int, list[Update]] = {}
    for update in updates:
        groups.setdefault(id(update.flat.plan.group), []).append(update)
    for members in groups.values():
        _Call.of(members).run(members)


class _Batch(NamedTuple):
    """Blocks whose neurons have the same options and learning rate: their turns are computed at once."""

    hyper: Hyper
    update: int
    """The index of an update, for the learning rate."""
    blocks: list[tuple[int, int, Block]]
    """The index of the update, the block's index in it, and the block."""
    slots: Tensor
    """The columns of the sums."""
    fan_in: Tensor
    nums: list[int]
    """The number of neurons per block."""
    repeats: Tensor


class _Call:
    """The plan of a step over certain ranges, computed once and reused."""

    def __init__(self, updates: Sequence[Update], parts: Sequence[Parts]) -> None:
        plans = [update.flat.plan for update in updates]
        device = updates[0].weight.device
        self.group, self.device = plans[0].group, device
        self.parts = parts
        self.first_slots, self.first_counts = [0], [0]
        for plan in plans:
            self.first_slots.append(self.first_slots[-1] + plan.num_slots)
            self.first_counts.append(self.first_counts[-1] + len(plan.slots))
        self.num_slots = self.first_slots[-1]
        self.num_counts = self.first_counts[-1] if plans[0].may_lack_gradients else 0
        self.dtype = sum_dtype(updates[0].weight)
        self.can_raise = any(update.hyper.nonfinite == "raise" for update in updates)
        self.num_ranks = dist.get_world_size(self.group) if self.can_raise else 0
        self.batches = self._batches(updates)
        self.whole_backends, self.cut_backends = updates[0].flat.backends

    @classmethod
    def of(cls, updates: Sequence[Update]) -> "_Call":
        """Return the plan of this step, the same object until ranges, state or options change."""
        parts = [update.flat.parts(update) for update in updates]
        order = {value: i for i, value in enumerate(dict.fromkeys(_value(u.lr) for u in updates))}
        # Which ranges share a learning rate, whatever it is.
        pattern = (order[_value(update.lr)] for update in updates) if len(order) > 1 else ()
        key = (*map(id, parts), *pattern)
        calls = updates[0].flat.calls
        if key not in calls:
            calls.clear()
            calls[key] = cls(updates, parts)
        made: _Call = calls[key]
        return made

    def _batches(self, updates: Sequence[Update]) -> list[_Batch]:
        found: dict[Any, list[tuple[int, int, Block]]] = {}
        for i, parts in enumerate(self.parts):
            for j, block in enumerate(parts.blocks):
                weight = updates[i].weight.dtype
                key = (
                    block.hyper,
                    _value(updates[i].lr),
                    working_dtype(weight),
                    "radius" in block.state,
                )
                found.setdefault(key, []).append((i, j, block))
        batches = []
        for (hyper, *_), blocks in found.items():
            nums = [block.state["exp_avg_norm"].numel() for *_, block in blocks]
            slots = [
                torch.arange(
                    self.first_slots[i] + block.slot, self.first_slots[i] + block.slot + num
                )
                for (i, _, block), num in zip(blocks, nums, strict=True)
            ]
            repeats = torch.tensor(nums, device=self.device)
            fan_in = torch.tensor([block.fan_in for *_, block in blocks], dtype=self.dtype)
            batches.append(
                _Batch(
                    *(hyper, blocks[0][0], blocks, torch.cat(slots).to(self.device)),
                    *(fan_in.to(self.device).repeat_interleave(repeats), nums, repeats),
                )
            )
        return batches

    def run(self, updates: Sequence[Update]) -> None:
        """Take the step."""
        ready = [
            [part.with_grad(update.grad, update.lr) for part in parts.cut]
            for update, parts in zip(updates, self.parts, strict=True)
        ]
        sums, counts = self._reduced(updates, ready)
        is_active = [update.has_grad for update in updates]
        if self.num_counts and not all(is_active):
            is_active = self._active(updates, counts)
        turns = self._turns(updates, sums)
        cut: list[tuple[Update, Turn]] = []
        whole: list[Update] = []
        for i, (update, parts) in enumerate(zip(updates, self.parts, strict=True)):
            if not is_active[i]:
                continue
            whole += [part.with_grad(update.grad, update.lr) for part in parts.whole]
            for part, each in zip(parts.cut, ready[i], strict=True):
                cut.append((each, _turn_of_part(turns[i, part.block], part, each)))
        for name in dict.fromkeys(each.backend for each, _ in cut):
            mine = [pair for pair in cut if pair[0].backend == name]
            # A kernel writes what it has summed, which may be more than is active.
            backend = self.cut_backends[name] if all(is_active) else plain
            backend.apply_([each for each, _ in mine], [turn for _, turn in mine])
        for name in dict.fromkeys(each.backend for each in whole):
            self.whole_backends[name].step_([each for each in whole if each.backend == name])

    def _reduced(
        self, updates: Sequence[Update], ready: Sequence[Sequence[Update]]
    ) -> tuple[Tensor, Tensor]:
        """All-reduce the sums; raise if a gradient is not finite and ``nonfinite="raise"``."""
        sizes = [_NUM_SUMS * self.num_slots, self.num_counts, self.num_ranks]
        buffer = torch.zeros(sum(sizes), dtype=self.dtype, device=self.device)
        flat, counts, flags = buffer.split(sizes)
        sums = flat.view(_NUM_SUMS, self.num_slots)
        cut = [
            (i, part, each)
            for i, parts in enumerate(self.parts)
            for part, each in zip(parts.cut, ready[i], strict=True)
        ]
        for name in dict.fromkeys(each.backend for *_, each in cut):
            mine = [item for item in cut if item[2].backend == name]
            grams = self.cut_backends[name].gram([each for *_, each in mine])
            for (i, part, _), products in zip(mine, grams, strict=True):
                block = self.parts[i].blocks[part.block or 0]
                first = self.first_slots[i] + block.slot
                num = block.state["exp_avg_norm"].numel()
                into = sums[:, first : first + num].view(_NUM_SUMS, *block.shape)[
                    (slice(None), *part.kept)
                ]
                into += products.sums.view(into.shape)
        if self.num_counts:
            for i, (update, parts) in enumerate(zip(updates, self.parts, strict=True)):
                for block in parts.blocks:
                    counts[self.first_counts[i] + block.number] = float(update.has_grad)
        if self.can_raise:
            flags[dist.get_rank(self.group)] = _first_not_finite(updates, self.parts)
        if len(buffer):
            buffer = all_reduce_over(buffer, self.group)
            flat, counts, flags = buffer.split(sizes)
            sums = flat.view(_NUM_SUMS, self.num_slots)
        if self.can_raise:
            positions = [int(flag) - 1 for flag in flags.tolist() if flag]
            if positions:
                pieces = [piece for update in updates for piece in update.flat.pieces]
                names = {piece.position: piece.name for piece in pieces}
                raise_not_finite(names[min(positions)], " on some rank")
        return sums, counts

    def _active(self, updates: Sequence[Update], counts: Tensor) -> list[bool]:
        """Return, for each range, whether any rank that shares its neurons has a gradient."""
        has = counts.tolist()
        return [
            update.has_grad
            or any(has[self.first_counts[i] + block.number] for block in parts.blocks)
            for i, (update, parts) in enumerate(zip(updates, self.parts, strict=True))
        ]

    def _turns(self, updates: Sequence[Update], sums: Tensor) -> dict[tuple[int, int | None], Turn]:
        """Compute the turns of all shared neurons of this rank, by update and block."""
        turns: dict[tuple[int, int | None], Turn] = {}
        for batch in self.batches:
            states = [block.state for *_, block in batch.blocks]
            state = {
                key: torch.cat([each[key].reshape(-1) for each in states]) for key in states[0]
            }
            steps = torch.stack([block.step for *_, block in batch.blocks]) + 1
            turn = turn_neurons(
                Gram(sums[:, batch.slots], "wg"),
                state,
                fan_in=batch.fan_in,
                step=steps.repeat_interleave(batch.repeats),
                lr=updates[batch.update].lr,
                dtype=working_dtype(updates[batch.update].weight.dtype),
                hyper=batch.hyper,
            )
            for (i, j, block), each in zip(batch.blocks, _split(turn, batch.nums), strict=True):
                turns[i, j] = _map(each, lambda x, shape=block.shape: x.view(shape))
        return turns


def _value(lr: float | Tensor) -> Any:
    return id(lr) if isinstance(lr, Tensor) else lr


def _first_not_finite(updates: Sequence[Update], parts: Sequence[Parts]) -> int:
    """Return 1 + the position of the first parameter whose gradient is not finite here, or zero."""
    checked = [
        part.with_grad(update.grad, update.lr)
        for update, each in zip(updates, parts, strict=True)
        if update.has_grad
        for part in (*each.whole, *each.cut)
        if part.update.hyper.nonfinite == "raise"
    ]
    return 1 + min(not_finite(checked), default=-1)


def _split(turn: Turn, nums: Sequence[int]) -> list[Turn]:
    """Split a turn of neurons one after the other."""
    tensors = _tensors(turn)
    parts = zip(*(tensor.split([*nums]) for tensor in tensors), strict=True)
    return [_turn(part) for part in parts]


def _turn_of_part(turn: Turn, part: Part, update: Update) -> Turn:
    """Return the turn of the neurons that a part belongs to."""
    shape = update.neurons.state_shape
    mine = _map(turn, lambda x: x[part.kept].view(shape))
    if not part.counts:
        mine = mine._replace(is_finite=torch.ones_like(mine.is_finite))
    return mine


def _map(turn: Turn, function: Any) -> Turn:
    return _turn([function(tensor) for tensor in _tensors(turn)])


def _tensors(turn: Turn) -> list[Tensor]:
    p, q = turn.weight.coefficients
    norm = turn.state["exp_avg_norm"]
    return [p, q, turn.weight.shift, turn.moves, norm, turn.is_finite, turn.is_written]


def _turn(tensors: Sequence[Tensor]) -> Turn:
    p, q, shift, moves, norm, is_finite_, is_written = tensors
    return Turn(Affine((p, q), shift), moves, {"exp_avg_norm": norm}, is_finite_, is_written)
