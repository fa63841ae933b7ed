"""Nero in one file is `nero.Nero`, bit for bit."""

import pytest
import torch
from torch import nn

import nero
from nero.core.presets import resolve_options
from nero_tools.speedrun import one_file


def network(width: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Embedding(40, width).bfloat16(),
        nn.LayerNorm(width),
        nn.Linear(width, 3 * width),
        nn.Linear(3 * width, width, bias=False),
        nn.Linear(width, 40),
    )


def one_file_optimizer(model: nn.Sequential, preset: str) -> one_file.Nero:
    hidden = resolve_options(preset, {}, role="neuron")
    beta = resolve_options(preset, {}, role="neuron", is_output=True)["beta"]
    is_polar = hidden["direction"] == "polar"
    table, _, first, second, head = model
    groups = [
        {"params": [table.weight], "radius": table.weight.shape[1] ** 0.5, "beta": beta},
        {"params": [first.weight, second.weight], "radius": 1.0, "polar": is_polar},
        {"params": [head.weight], "radius": 1.0, "beta": beta},
        {"params": [p for p in model.parameters() if p.ndim == 1]},
    ]
    return one_file.Nero(groups, **{key: hidden[key] for key in ("lr", "momentum", "beta")})


@pytest.mark.parametrize("preset", ["rows", "polar"])
@pytest.mark.parametrize(
    "width", [24, 192]
)  # the plain backend walks the larger matrices in blocks
def test_twenty_steps_are_bit_identical(preset, width):
    model, other = network(width), network(width)
    optimizer = nero.Nero(model, preset=preset, stochastic_rounding=True, fused=False)
    other_optimizer = one_file_optimizer(other, preset)
    source = torch.Generator().manual_seed(1)
    for step in range(20):
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            p.grad = torch.randn(p.shape, generator=source).to(p.dtype)
            if p.ndim == 2:
                p.grad[step % 5] = 0  # rows without a gradient
            q.grad = p.grad.clone()
        for each in (optimizer, other_optimizer):
            for group in each.param_groups:
                group["lr"] = 0.03 / (step + 1)
            each.step()
        for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
            assert torch.equal(p, q), f"{name} after step {step}"
