"""Gradients that are not finite."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from nero.checks.names import name_at
from nero.core.finite import not_finite, raise_not_finite
from nero.core.sharding import is_sharded
from nero.core.update import Update


# It synchronizes with the device, so torch.compile must not trace it.
@torch._disable_dynamo  # type: ignore[attr-defined]
def check_finite(updates: Sequence[Update], groups: Sequence[Mapping[str, Any]]) -> None:
    """Raise, on all ranks or on none, if a gradient is not finite.

    Ranks see different parts of a sharded gradient, so they agree on the first parameter that has NaN
    or inf anywhere: one number per process group. Every parameter's mesh takes part, with a gradient
    or without, since ranks may disagree on that too. Without sharded parameters nothing is sent:
    gradients are then assumed equal on all ranks, as DDP leaves them.
    """
    params = [param for group in groups for param in group["params"]]
    checked = [update for update in updates if update.hyper.nonfinite == "raise"]
    first, where = min(not_finite(checked), default=len(params)), ""
    meshes = [param.device_mesh for param in params if is_sharded(param)]
    if meshes:
        from nero.distributed import lowest_on_any_rank

        first, where = lowest_on_any_rank(first, meshes), " on some rank"
    if first < len(params):
        raise_not_finite(name_at(groups, first), where)
