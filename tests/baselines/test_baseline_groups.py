"""Param groups of baselines that come and go."""

import gc
import weakref

import pytest
import torch
from torch import nn

from nero.baselines import Fromage, Lamb, Lars, Madam


@pytest.mark.parametrize("make", [Fromage, Lamb, Lars, Madam])
def test_a_group_that_is_removed_is_forgotten(make):
    first, second = (nn.Parameter(torch.randn(3, 4)) for _ in range(2))
    optimizer = make([{"params": [first]}, {"params": [second]}], lr=0.1)
    for param in (first, second):
        param.grad = torch.randn(3, 4)
    optimizer.step()
    removed = optimizer.param_groups.pop(0)
    before = second.detach().clone()
    optimizer.step()  # the other one has its place now
    assert not torch.equal(second, before)
    left = weakref.ref(first)
    del optimizer.state[first], removed, first, param
    gc.collect()
    assert left() is None


@pytest.mark.parametrize("make", [Fromage, Lamb, Lars, Madam])
def test_a_rate_that_changes_every_step_is_obeyed(make):
    weights = [nn.Parameter(torch.ones(3, 4)) for _ in range(2)]
    optimizers = [make([weight], lr=0.1) for weight in weights]
    for step in range(3):
        for weight, optimizer in zip(weights, optimizers, strict=True):
            weight.grad = torch.randn(3, 4, generator=torch.Generator().manual_seed(step))
            optimizer.param_groups[0]["lr"] = (
                0.1 / (1 + step) if optimizer is optimizers[0] else 0.1
            )
            optimizer.step()
    assert not torch.equal(*weights)
