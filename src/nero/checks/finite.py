"""Gradients that are not finite."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nero.checks.names import name_at
from nero.core.sharding import is_sharded
from nero.core.update import Update


def check_finite(updates: Sequence[Update], groups: Sequence[Mapping[str, Any]]) -> None:
    """Raise, on all ranks or on none, if a gradient is not finite.

    Ranks see different parts of a sharded gradient, so they agree on the first parameter that has NaN
    or inf anywhere: one number per process group. Every parameter's mesh takes part, with a gradient
    or without, since ranks may disagree on that too. Without sharded parameters nothing is sent:
    gradients are then assumed equal on all ranks, as DDP leaves them.
    """
    params = [param for group in groups for param in group["params"]]
    first, where = len(params), ""
    for update in updates:
        if update.hyper.nonfinite == "raise" and not _is_finite(update.grad):
            first = update.position
            break
    meshes = [param.device_mesh for param in params if is_sharded(param)]
    if meshes:
        from nero.distributed import lowest_on_any_rank

        first, where = lowest_on_any_rank(first, meshes), " on some rank"
    if first < len(params):
        name = name_at(groups, first)
        raise FloatingPointError(
            f"the gradient of {name} is not finite{where}; nothing was updated: look into the loss, or "
            'leave nonfinite="skip" to go on without such neurons'
        )


def _is_finite(grad: Tensor) -> bool:
    # A sum is finite only if all its terms are, and costs far less than to look at each. It may overflow.
    return bool(torch.isfinite(grad.sum()) or torch.isfinite(grad).all())
