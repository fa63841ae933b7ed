"""The adapter of this library: a model for yours, and the test of ours."""

import math
from typing import Any

import torch
from torch import nn

from nero import Nero, Sphere
from nero.layout import LAYOUT_KEYS


def run(case: dict[str, Any], dtype: torch.dtype = torch.float64) -> list[dict[str, Any]]:
    """Run a case through [`Nero`][nero.Nero] and report what it holds after each step."""
    options = dict(case["options"])
    constraint = Sphere(options.pop("radius"), options.pop("centre"))
    layout = {key: case[key] for key in LAYOUT_KEYS}
    param = nn.Parameter(torch.tensor(case["weight"], dtype=dtype).reshape(case["shape"]))
    optimizer = Nero([{"params": [param], "constraint": constraint, **layout, **options}])
    seen = [_snapshot(param, optimizer)]
    for grad, lr in zip(case["gradients"], case["lr"], strict=True):
        param.grad = None if grad is None else torch.tensor(grad, dtype=dtype).view_as(param)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        seen.append(_snapshot(param, optimizer))
    return seen


def _snapshot(param: torch.Tensor, optimizer: Nero) -> dict[str, Any]:
    state = optimizer.state[param]
    average = state["exp_avg_norm"].double().abs().flatten().tolist()  # its sign marks missed steps
    assert all(math.isfinite(x) for x in average)
    return {
        "weight": param.detach().double().flatten().tolist(),
        "average": average,
        "step": int(state["step"]),
        "num_skipped": int(state["num_skipped"]),
    }
