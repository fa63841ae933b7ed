"""The adapter of this library: a model for yours, and the test of ours."""

import math
from typing import Any

import torch
from torch import nn

from nero import Nero, Sphere


def run(case: dict[str, Any], dtype: torch.dtype = torch.float64) -> list[dict[str, Any]]:
    """Run a case through [`Nero`][nero.Nero] and report what it holds after each step."""
    options = dict(case["options"])
    constraint = Sphere(options.pop("radius"), options.pop("centre"))
    rows = _as_rows(case).to(dtype)
    param = nn.Parameter(rows)
    optimizer = Nero(
        [{"params": [param], "role": case["role"], "constraint": constraint, **options}]
    )
    seen = [_snapshot(param, optimizer)]
    for grad, lr in zip(case["gradients"], case["lr"], strict=True):
        param.grad = None if grad is None else torch.tensor(grad, dtype=dtype).reshape(rows.shape)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        seen.append(_snapshot(param, optimizer))
    return seen


def _as_rows(case: dict[str, Any]) -> torch.Tensor:
    # Every case lists its neurons one after the other, so rows are a reshape.
    weight = torch.tensor(case["weight"], dtype=torch.float64)
    return weight.reshape(len(case["neurons"]), -1) if case["neurons"] else weight


def _snapshot(param: torch.Tensor, optimizer: Nero) -> dict[str, Any]:
    state = optimizer.state[param]
    average = state["exp_avg_norm"].double().flatten().tolist()
    assert all(math.isfinite(x) for x in average)
    return {
        "weight": param.detach().double().flatten().tolist(),
        "average": average,
        "step": int(state["step"]),
        "num_skipped": int(state["num_skipped"]),
    }
