"""What a step costs under DeepSpeed ZeRO, whose ranks hold contiguous ranges of flattened parameters.

Stages 1 and 2 join the parameters of each param group to one vector, pad it to a multiple of twice the
number of ranks, and cut it into equal ranges. Stage 3 cuts every parameter by itself into ranges of
ceil(numel / ranks). A neuron whose first and last weight lie in different ranges is cut: its ranks add up
five float64 sums. All other neurons are stepped without communication.

Nothing is simulated here: ranges, and the neurons that they cut, follow from the shapes. What DeepSpeed's
Muon does is read from the source of DeepSpeed 0.19.8 (``runtime/zero/stage_1_and_2.py`` and ``stage3.py``),
with float32 gradients and without offloading.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nero.core.neurons import Neurons, neurons_from_options
from nero.core.spec import STATE, Hyper
from nero.layout import hidden_matrices
from nero.numbers import human_bytes
from nero.optim import Nero

SUMS_BYTES = 5 * 8
"""What the ranks of a cut neuron add up: five float64 sums."""
_BUCKET = 500_000_000  # DeepSpeed's reduce_bucket_size
_SUB_GROUP = 1_000_000_000  # its sub_group_size, which counts elements of a rank


class Range(NamedTuple):
    """One flat vector: parameters one after another, cut among ranks."""

    offsets: Sequence[int]
    """Where each parameter begins."""
    size: int
    """Elements per rank, padding included."""


class Shares(NamedTuple):
    """What each rank holds of a param group, and how many neurons are cut."""

    elements: Tensor
    """Per rank: elements of its ranges."""
    numbers: Tensor
    """Per rank: neurons of which it holds a part; elements, of parameters without fan-in."""
    num_cut: int
    """Neurons that lie on several ranks."""
    num_calls: int
    """How often DeepSpeed calls ``step()`` for this group."""


def flatten(numels: Sequence[int], num_ranks: int, stage: int) -> list[Range]:
    """Return the flat vectors of one param group.

    Example:
        >>> from nero_tools.plan.zero import flatten
        >>> flatten([10, 7], 4, stage=2)
        [Range(offsets=[0, 10], size=6)]
        >>> flatten([10, 7], 4, stage=3)
        [Range(offsets=[0], size=3), Range(offsets=[0], size=2)]
    """
    if stage == 3:
        return [Range([0], -(-numel // num_ranks)) for numel in numels]
    offsets = [sum(numels[:i]) for i in range(len(numels))]
    aligned = 2 * num_ranks
    return [Range(offsets, -(-sum(numels) // aligned) * aligned // num_ranks)]


def neuron_spans(neurons: Neurons, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the positions of the first and the last weight of every neuron in the flattened parameter.

    Example:
        >>> from nero.layout import neurons
        >>> from nero_tools.plan.zero import neuron_spans
        >>> [x.tolist() for x in neuron_spans(neurons(0).at((2, 3)), (2, 3))]
        [[0, 3], [2, 5]]
        >>> [x.tolist() for x in neuron_spans(neurons(1).at((2, 3)), (2, 3))]
        [[0, 1, 2], [3, 4, 5]]
    """
    if neurons.num_groups > 1:
        shape = (neurons.num_groups, shape[0] // neurons.num_groups, *shape[1:])
    first, last, stride = torch.zeros((), dtype=torch.int64), 0, 1
    for dim in reversed(range(len(shape))):
        if dim in neurons.fan_in_dims:
            last += (shape[dim] - 1) * stride
        else:
            places = torch.arange(shape[dim]) * stride
            first = places.view(-1, *[1] * first.ndim) + first
        stride *= shape[dim]
    first = first.flatten()
    return first, first + last


def shares(members: Iterable[tuple[Tensor, Neurons]], num_ranks: int, stage: int) -> Shares:
    """Return what every rank holds of a param group."""
    params = list(members)
    numels = [param.numel() for param, _ in params]
    ranges = flatten(numels, num_ranks, stage)
    starts = [(r.size, offset) for r in ranges for offset in r.offsets]
    elements = torch.zeros(num_ranks, dtype=torch.int64)
    numbers, num_cut = elements.clone(), 0
    for (param, neurons), (size, start) in zip(params, starts, strict=True):
        held = _overlaps(start, start + param.numel(), size, num_ranks)
        elements += held
        if neurons.is_elementwise:
            numbers += held
            continue
        first, last = ((start + place) // size for place in neuron_spans(neurons, param.shape))
        num_cut += int((first != last).sum())
        changes = torch.bincount(first, minlength=num_ranks + 1)
        changes -= torch.bincount(last + 1, minlength=num_ranks + 1)
        numbers += changes.cumsum(0)[:num_ranks]
    num_calls = 1
    if stage == 3:
        num_calls = _num_chunks([r.size for r in ranges], _SUB_GROUP)
    return Shares(elements, numbers, num_cut, num_calls)


class ZeroCost(NamedTuple):
    """What a step costs on the rank with the most state."""

    state_bytes: int
    collectives: Mapping[str, int] = {}
    num_bytes: int = 0
    note: str = ""


def zero_cost(
    model: nn.Module, num_ranks: int, stage: int, readers: Mapping[str, Any], name: str
) -> ZeroCost | str:
    """Return what a step of an optimizer costs, or why it cannot be planned.

    Args:
        model: without storage.
        num_ranks: how many ranks there are.
        stage: of ZeRO.
        readers: functions that build Nero from a model, by name.
        name: of the optimizer.
    """
    if name in readers and name != "nero-polar":
        return nero_cost(readers[name](model), num_ranks, stage)
    if name == "adamw":
        params = [p for p in model.parameters() if p.requires_grad]
        return adamw_cost(params, num_ranks, stage)
    if name == "deepspeed-muon":
        return deepspeed_muon_cost(model, num_ranks, stage)
    return "it needs unflattened layers, but ZeRO flattens them"


def nero_cost(optimizer: Nero, num_ranks: int, stage: int) -> ZeroCost:
    """Return the cost of Nero: one all-reduce per call of ``step()`` that has cut neurons."""
    state = torch.zeros(num_ranks, dtype=torch.int64)
    num_calls = num_cut = 0
    for group in optimizer.param_groups:
        hyper = Hyper.read(group)
        members = [(p, neurons_from_options(group, p.shape)) for p in group["params"]]
        held = shares(members, num_ranks, stage)
        per_element = STATE["exp_avg"].dtype_for(torch.float32, hyper).itemsize
        state += 4 * held.numbers + held.elements * per_element * (hyper.momentum > 0)
        state += 2 * 8 * held.num_calls  # counters
        num_calls += held.num_calls * bool(held.num_cut)
        num_cut += held.num_cut
    kinds = {"all_reduce": num_calls} if num_calls else {}
    return ZeroCost(int(state.max()), kinds, num_cut * SUMS_BYTES)


def adamw_cost(params: Sequence[Tensor], num_ranks: int, stage: int) -> ZeroCost:
    """Return the cost of AdamW: two averages per element, and nothing to send."""
    sizes = [r.size for r in flatten([p.numel() for p in params], num_ranks, stage)]
    return ZeroCost(8 * sum(sizes))


def deepspeed_muon_cost(model: nn.Module, num_ranks: int, stage: int) -> ZeroCost:
    """Return the cost of DeepSpeed's Muon for the hidden matrices, and AdamW for the rest.

    Stages 1 and 2 orthogonalize a matrix on every rank that holds a part of it. Such a rank keeps the
    momentum of the whole matrix and needs its whole gradient, so the gradients of matrices that are cut are
    all-reduced. Stage 3 gathers gradients and momentum of a bucket of matrices on all ranks. One rank
    orthogonalizes each matrix, and both are gathered again, in as many buffers as there are ranks, each of
    the size of the largest matrix.
    """
    hidden = hidden_matrices(model)
    is_hidden, numels = {*hidden}, [p.numel() for p in hidden]
    rest = [p for p in model.parameters() if p.requires_grad and p not in is_hidden]
    state_bytes = adamw_cost(rest, num_ranks, stage).state_bytes
    ranges = flatten(numels, num_ranks, stage)
    if stage == 3:
        num_chunks = num_rounds = num_bytes = 0
        for chunk in _chunks(numels, _BUCKET):
            num_chunks += 1
            num_bytes += 2 * 4 * sum(num_ranks * -(-n // num_ranks) for n in chunk)
            for start in range(0, len(chunk), num_ranks):
                num_rounds += 1
                num_bytes += 2 * 4 * num_ranks * max(chunk[start : start + num_ranks])
        kinds = {"all_gather_into_tensor": 2 * num_chunks, "all_gather": 2 * num_rounds}
        return ZeroCost(state_bytes + 4 * sum(r.size for r in ranges), kinds, num_bytes)
    momentum, num_cut, cut_bytes = torch.zeros(num_ranks, dtype=torch.int64), 0, 0
    for start, numel in zip(ranges[0].offsets, numels, strict=True):
        first, last = start // ranges[0].size, (start + numel - 1) // ranges[0].size
        momentum[first : last + 1] += 4 * numel
        num_cut += first != last
        cut_bytes += 4 * numel * (first != last)
    note = (
        f"deepspeed-muon: in the backward pass, the gradients of {num_cut:,} matrices split across "
        f"ranks ({human_bytes(cut_bytes)}) are all-reduced instead of reduced to one rank each"
    )
    return ZeroCost(state_bytes + int(momentum.max()), note=note if num_cut else "")


def _overlaps(start: int, stop: int, size: int, num_ranks: int) -> Tensor:
    """Count the elements from ``start`` to ``stop`` in each range."""
    bounds = torch.arange(num_ranks + 1) * size
    return bounds.clamp(start, stop).diff()


def _chunks(numels: Sequence[int], limit: int) -> list[list[int]]:
    """Fill buckets up to a limit, each with at least one."""
    chunks: list[list[int]] = []
    for numel in numels:
        if chunks and sum(chunks[-1]) + numel <= limit:
            chunks[-1].append(numel)
        else:
            chunks.append([numel])
    return chunks


def _num_chunks(numels: Sequence[int], limit: int) -> int:
    """Return how many sub-groups there are, each closed as soon as it reaches the limit."""
    num, filled = 0, 0
    for numel in numels:
        filled += numel
        if filled >= limit:
            num, filled = num + 1, 0
    return num + bool(filled)
