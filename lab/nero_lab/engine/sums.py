"""Totals and counts of what was seen, over steps and over ranks."""

import math

import torch
import torch.distributed as dist
from torch import Tensor

from nero_lab.engine.task import Setting, Sums


def add_(sums: Sums, seen: Sums) -> None:
    """Add what was seen to sums, in place.

    Example:
        >>> sums = {"loss": (1.0, 2)}
        >>> add_(sums, {"loss": (3.0, 1), "accuracy": (0.5, 1)})
        >>> sums
        {'loss': (4.0, 3), 'accuracy': (0.5, 1)}
    """
    for name, (total, count) in seen.items():
        before, counted = sums.get(name, (0.0, 0))
        total = total.detach() if isinstance(total, Tensor) else total
        sums[name] = (before + total, counted + count)


def averages(sums: Sums, setting: Setting) -> dict[str, float]:
    """Divide totals by counts, over all ranks; NaN where nothing was counted."""
    names = list(sums)
    if not names:
        return {}
    pairs = torch.tensor(
        [[float(sums[name][0]), float(sums[name][1])] for name in names], dtype=torch.float64
    )
    if setting.world_size > 1:
        pairs = pairs.to(setting.device)
        dist.all_reduce(pairs)
    return {
        name: total / count if count else math.nan
        for name, (total, count) in zip(names, pairs.tolist(), strict=True)
    }
