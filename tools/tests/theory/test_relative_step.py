"""Definition 5 and Equation 2 against a loop over neurons."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import nero
from nero_tools.theory import layer_step, neuron_step, proposed_update, relative_steps


def test_agrees_with_a_loop_over_neurons():
    torch.manual_seed(0)
    before = torch.randn(3, 4, 2, 2)
    after = before + 0.1 * torch.randn(3, 4, 2, 2)
    steps = neuron_step(before, after, fan_in_dims=(1, 2, 3))
    assert steps.shape == (3, 1, 1, 1)
    for i in range(3):
        old, new = (x[i].flatten().tolist() for x in (before, after))
        change = math.hypot(*(b - a for a, b in zip(old, new, strict=True)))
        assert steps[i].item() == pytest.approx(change / math.hypot(*old))
    old, new = before.flatten().tolist(), after.flatten().tolist()
    change = math.hypot(*(b - a for a, b in zip(old, new, strict=True)))
    assert layer_step(before, after) == pytest.approx(change / math.hypot(*old))


def test_biases_stand_alone():
    before, after = torch.tensor([1.0, -2.0, 0.0, 0.0]), torch.tensor([1.5, -2.0, 0.0, 1.0])
    assert neuron_step(before, after, fan_in_dims=()).tolist() == [0.5, 0.0, 0.0, math.inf]


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(-6, 6), st.integers(0, 2**31))
def test_equation_2(num_neurons, fan_in, exponent, seed):
    generator = torch.Generator().manual_seed(seed)
    before, change = torch.randn(2, num_neurons, fan_in, generator=generator, dtype=torch.float64)
    after = before + 10.0**exponent * change
    largest = neuron_step(before, after, fan_in_dims=(1,)).max().item()
    assert layer_step(before, after) <= largest * (1 + 1e-12)


@pytest.mark.parametrize("constraint", ["balanced", "none"])
def test_neros_first_step_is_per_neuron_relative(constraint):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 6, 3, groups=2), nn.Flatten()
    ).double()
    optimizer = nero.Nero(model, lr=0.03, constraint=constraint)
    model(torch.randn(5, 2, 8, 8, dtype=torch.float64)).square().mean().backward()
    steps = relative_steps(model, proposed_update(model, optimizer))
    of = {p.name: p for p in steps.parameters}
    assert [*of] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    for name in ("0.weight", "2.weight"):
        assert of[name].largest <= 0.03 * (1 + 1e-6)
        assert of[name].layer <= of[name].largest
        if constraint == "none":  # before the projection, every neuron steps by exactly lr
            assert of[name].median == pytest.approx(0.03)
    # Biases step by lr times their initial scale: one that is smaller than the scale steps further.
    assert of["0.bias"].largest > 0.03
    assert steps.eta == max(p.largest for p in steps.parameters)


def test_prints_a_table():
    model = nn.Linear(3, 2, bias=False)
    printed = str(relative_steps(model, {"weight": 0.5 * model.weight.detach()}))
    assert printed.splitlines()[1].split() == ["weight", "neuron", "0.5000", "0.5000", "0.5000"]
    assert "per-neuron relative for eta = 0.5000" in printed


def test_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="no parameter `other`"):
        relative_steps(nn.Linear(3, 2), {"other": torch.zeros(2, 3)})


def test_a_bias_that_starts_at_zero_does_not_hide_the_neurons():
    model = nn.Linear(3, 2).double()
    nn.init.zeros_(model.bias)
    update = {"weight": 0.01 * model.weight.detach(), "bias": torch.ones(2)}
    steps = relative_steps(model, update)
    assert steps.eta == math.inf
    assert steps.neuron_eta == pytest.approx(0.01)
    assert "eta = inf; the weights alone for 0.0100" in str(steps)
