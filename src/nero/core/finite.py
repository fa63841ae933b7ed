"""Gradients that are not finite, under ``nonfinite="raise"``."""

from collections.abc import Sequence
from typing import NoReturn

import torch

from nero.core.precision import sum_dtype, working_dtype
from nero.core.update import Update


def not_finite(updates: Sequence[Update]) -> list[int]:
    """Return the positions of the parameters whose gradients are not finite.

    Waits once per device that holds gradients, and once more if a sum is not finite.
    """
    by_device: dict[torch.device, list[Update]] = {}
    for update in updates:
        by_device.setdefault(update.grad.device, []).append(update)
    found = []
    for members in by_device.values():
        # A sum is finite only if its terms are, and costs far less than a look at each; it may overflow.
        sums = [update.grad.sum(dtype=working_dtype(update.grad.dtype)) for update in members]
        if not torch.isfinite(torch.stack([total.to(sum_dtype(total)) for total in sums])).all():
            each = torch.stack([torch.isfinite(update.grad).all() for update in members]).tolist()
            found += [u.position for u, good in zip(members, each, strict=True) if not good]
    return found


def raise_not_finite(name: str, where: str = "") -> NoReturn:
    """Raise because of a parameter's gradient."""
    raise FloatingPointError(
        f"the gradient of {name} is not finite{where}; nothing was updated. Look into the loss, or "
        'pass nonfinite="skip" to skip such neurons'
    )
