"""`torch.compile(optimizer.step)`: the same trajectory, and no compilation when lr changes."""

from typing import Any

import pytest
import torch
from optimizer_table import Claim, Entry, each_entry
from tiny_problem import assert_moves, assert_same, weights
from torch import nn
from torch._dynamo.testing import CompileCounter


def small_model() -> nn.Module:
    # Every kind of update, a neuron's, a gain's and a bias's: tracing time grows with parameters.
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))


def run(entry: Entry, *, is_tensor: bool, compiled: bool) -> tuple[list[Any], list[int]]:
    torch.compiler.reset()
    model = small_model()
    inputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    optimizer = entry.build(model, lr=torch.tensor(entry.lr) if is_tensor else entry.lr)
    counter = CompileCounter()
    step = optimizer.step
    if compiled:
        fullgraph = entry.holds(Claim.FULL_GRAPH)
        step = torch.compile(step, backend=counter, fullgraph=fullgraph)
    trajectory, counts = [], []
    for index in range(5):
        optimizer.zero_grad()
        model(inputs)[:, :2].square().sum().backward()
        step()
        trajectory.append(weights(model.parameters()))
        counts.append(counter.frame_count)
        for group in optimizer.param_groups:
            lr = entry.lr / 2 ** (index + 1)
            group["lr"] = group["lr"].fill_(lr) if is_tensor else lr
    return trajectory, counts


@each_entry
@pytest.mark.parametrize("is_tensor", [True, False])
def test_compiled_step(entry: Entry, is_tensor: bool):
    expected, _ = run(entry, is_tensor=is_tensor, compiled=False)
    actual, counts = run(entry, is_tensor=is_tensor, compiled=True)
    assert_moves(actual)
    if entry.holds(Claim.COMPILES_EXACTLY):
        assert_same(expected, actual)
    else:
        # a rounding or two of the update, five times
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    if entry.holds(Claim.FULL_GRAPH):
        # A float becomes a symbol the first time that it changes, and is one from then on.
        assert counts[0] == 1
        assert counts[-1] == 1 if is_tensor else counts[-1] <= 2
    else:
        assert counts[-1] == counts[2], "recompiles at every step"
