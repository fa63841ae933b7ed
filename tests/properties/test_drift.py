"""Neurons stay balanced for as long as anyone trains."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from nero import Nero

RECORD = Path(__file__).parents[2] / "records" / "drift.json"
LIMIT = 1e-6


def drift(num_steps: int) -> dict[str, float]:
    """The largest |norm - 1| and |mean| of any neuron at any of 100 looks along the way."""
    torch.manual_seed(0)
    params = [
        nn.Parameter(torch.randn(shape)) for shape in [(64, 3), (32, 27), (16, 784), (4, 4096)]
    ]
    optimizer = Nero(params)
    worst = {"norm": 0.0, "mean": 0.0}
    for t in range(num_steps):
        for param in params:
            param.grad = torch.randn_like(param)
        optimizer.step()
        if t % max(num_steps // 100, 1) == 0 or t == num_steps - 1:
            for param in params:
                rows = param.detach().double()
                worst["norm"] = max(worst["norm"], (rows.norm(dim=1) - 1).abs().max().item())
                worst["mean"] = max(worst["mean"], rows.mean(dim=1).abs().max().item())
    return worst


def test_2_000_steps_do_not_drift():
    assert max(drift(2_000).values()) < LIMIT


@pytest.mark.slow
def test_100_000_steps_do_not_drift():
    worst = drift(100_000)
    RECORD.write_text(
        json.dumps(
            {
                "what": "largest |norm - 1| and |mean| of any neuron, fp32, random gradients",
                "command": "python -m pytest -m slow tests/properties/test_drift.py",
                "torch": torch.__version__,
                "num_steps": 100_000,
                "limit": LIMIT,
                **worst,
            },
            indent=2,
        )
        + "\n"
    )
    assert max(worst.values()) < LIMIT
