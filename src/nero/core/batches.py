"""Equal layers, stacked, so that a step with directions is a few hundred operations and not thousands.

Launching thousands of small operations takes a GPU longer than running them. On CPUs every layer stays
alone: threads split a batch of products in another way than a single product, so the bits of a direction
would depend on how many layers a process or a rank has.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nero.core.update import Update, average_dtype

_UNSTACKED = frozenset({"cpu"})
_MAX_WEIGHTS = 1 << 25
"""Per batch: a stack of float32 takes up to 128 MiB. A larger layer is a batch of its own."""


def batches_of(updates: Sequence[Update]) -> list[list[Update]]:
    """Group updates that can be stacked: those that follow the polar direction in layers of one shape.

    Functions that users register get one layer at a time, on every device.
    """
    groups: dict[Any, list[Update]] = {}
    rates: list[Any] = []
    for update in updates:
        is_alone = update.hyper.direction != "polar" or update.grad.device.type in _UNSTACKED
        key = (update.position,) if is_alone else _key(update, rates)
        groups.setdefault(key, []).append(update)
    batches = []
    for group in groups.values():
        size = max(_MAX_WEIGHTS // max(group[0].grad.numel(), 1), 1)
        batches += [group[i : i + size] for i in range(0, len(group), size)]
    return batches


def _key(update: Update, rates: list[Any]) -> tuple[Any, ...]:
    """Return what must be equal in a batch; of learning rates, whether they are zero."""
    rate: Any = update.lr
    if isinstance(
        rate, Tensor
    ):  # its value is on the device, so the tensor itself must be the same
        if not any(rate is other for other in rates):
            rates.append(rate)
        rate = next(i for i, other in enumerate(rates) if rate is other)
    else:
        rate = rate != 0
    grad, dtypes = update.grad, (update.weight.dtype, average_dtype(update))
    same = grad.shape, grad.dtype, grad.device, update.neurons, update.hyper
    return (isinstance(update.lr, Tensor), rate, *same, *dtypes)


def stacked(updates: Sequence[Update]) -> Update:
    """Return one update for a batch, with layers along a new first dim; that of a single layer is its own.

    It has gradients and momentum buffers. Its weight is that of the first layer, for the dtype.
    """
    first = updates[0]
    if len(updates) == 1:
        return first
    state = {}
    if "exp_avg" in first.state:
        state["exp_avg"] = torch.stack([update.state["exp_avg"] for update in updates])
    dims = tuple(d + 1 for d in first.neurons.fan_in_dims)
    return first._replace(
        grad=torch.stack([update.grad for update in updates]),
        state=state,
        neurons=first.neurons._replace(fan_in_dims=dims),
    )


def unstacked(stack: Tensor, updates: Sequence[Update]) -> list[Tensor]:
    """Return each layer's part of a result for `stacked`."""
    return [stack] if len(updates) == 1 else [*stack.unbind()]
