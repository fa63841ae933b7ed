"""The search for alpha where alpha is known, and the rotations that it is made of."""

import copy
import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import nero
from nero.diagnostics import turning_angle
from nero.functional import project
from nero_tools.theory import search_robustness
from nero_tools.theory.rotation import Rotation

ROWS = {"fan_in_dims": (1,)}
BALANCED_ROWS = Rotation((1,))


def neurons(seed, *shape, centre=True):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return project(weight, fan_in_dims=(1,)) if centre else weight


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.floats(1e-7, 3.1), st.integers(3, 40), st.booleans(), st.integers(0, 2**31))
def test_a_turn_is_a_turn(angle, fan_in, centre, seed):
    weight = neurons(seed, 4, fan_in, centre=centre)
    generator = torch.Generator().manual_seed(seed + 1)
    turned = Rotation((1,), centre).at_random(weight, angle, generator)
    torch.testing.assert_close(turned.norm(dim=1), weight.norm(dim=1), rtol=1e-12, atol=0)
    if centre:
        assert turned.sum(1).abs().max() < 1e-13
    # Near pi, the sum of two opposite vectors has few digits.
    angles = turning_angle(weight, turned, **ROWS)
    torch.testing.assert_close(angles, torch.full_like(angles, angle), rtol=1e-8, atol=1e-15)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.floats(1e-3, 1.5), st.floats(1e-3, 1.5), st.integers(0, 2**31))
def test_pulled_back_no_further_than_to_the_rim(turned_by, cap, seed):
    origin = neurons(seed, 3, 10)
    generator = torch.Generator().manual_seed(seed + 1)
    weight = BALANCED_ROWS.at_random(origin, turned_by, generator)
    pulled = BALANCED_ROWS.into_cap(weight, origin, cap)
    angles = turning_angle(origin, pulled, **ROWS)
    torch.testing.assert_close(angles, torch.full_like(angles, min(turned_by, cap)))
    # On the same great circle: what is left of the way is the rest of the angle.
    rest = turning_angle(pulled, weight, **ROWS)
    torch.testing.assert_close(
        rest, torch.full_like(rest, max(turned_by - cap, 0)), atol=1e-7, rtol=1e-6
    )


def test_nothing_turns_along_itself():
    weight = neurons(0, 3, 6)
    assert torch.equal(BALANCED_ROWS.towards(weight, 2 * weight, 0.5), weight)
    assert torch.equal(BALANCED_ROWS.towards(weight, torch.zeros_like(weight), 0.5), weight)
    # The mean is left out.
    assert not BALANCED_ROWS.part_across(weight, torch.ones_like(weight)).any()


def linear_problem(seed, *, num_classes=4, centre=True):
    """One layer without bias, and its alpha: half the gap between a sample's two nearest neurons.

    A sample at an angle of psi_y from its own neuron and psi_k from another is lost when both have
    turned by alpha, the one away and the other towards it: psi_y + alpha > psi_k - alpha.
    """
    weight = neurons(seed, num_classes, 12, centre=centre)
    weight = weight / weight.norm(dim=1, keepdim=True)
    layer = nn.Linear(12, num_classes, bias=False).double()
    layer.weight.data.copy_(weight)
    generator = torch.Generator().manual_seed(seed + 1)
    inputs = torch.randn(30, 12, generator=generator, dtype=torch.float64)
    labels = layer(inputs).argmax(1)
    seen = inputs - inputs.mean(1, keepdim=True) if centre else inputs
    angles = torch.acos(seen @ weight.T / seen.norm(dim=1, keepdim=True))
    gaps = (angles - angles.gather(1, labels[:, None])) / 2
    gaps.scatter_(1, labels[:, None], math.inf)
    return layer, inputs, labels, gaps.min().item(), int(gaps.min(1).values.argmin())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("centre", [True, False])
def test_one_layer_is_known(seed, centre):
    layer, inputs, labels, alpha, sample = linear_problem(seed, centre=centre)
    found = search_robustness(
        layer, inputs, labels, num_starts=1, constraint="balanced" if centre else "norm"
    )
    # An upper bound, by definition; and one layer has no second minimum in which to be stuck.
    assert alpha * (1 - 1e-9) <= found.angle_rad <= alpha * 1.02
    assert found.searched_rad <= alpha
    assert found.sample == sample


def two_layers(dtype=torch.float32):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))
    model = model.to(dtype)
    nero.project_(model)
    inputs = torch.randn(20, 6, dtype=dtype)
    return model, inputs, model(inputs).argmax(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_witness_is_a_witness(dtype):
    model, inputs, labels = two_layers(dtype)
    found = search_robustness(model, inputs, labels, num_starts=1, num_steps=10)
    assert 0 <= found.searched_rad < found.angle_rad < math.pi / 2
    turned = copy.deepcopy(model)
    turned.load_state_dict(found.weights, strict=False)
    assert set(found.weights) == {"0.weight", "3.weight"}
    logits = turned(inputs)
    assert logits[found.sample].argmax() != labels[found.sample]
    own = logits[found.sample, labels[found.sample]]
    assert (own - logits[found.sample].max()).item() == pytest.approx(found.margin, abs=1e-5)
    for name, weight in found.weights.items():
        before = model.get_parameter(name).detach()
        assert turning_angle(before, weight, **ROWS).max() <= found.angle_rad * (1 + 1e-12)
        assert weight.dtype == dtype
    assert f"errs on sample {found.sample}" in str(found)


def test_the_model_is_left_alone():
    model, inputs, labels = two_layers()
    before, random_state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    options = {"num_starts": 1, "num_steps": 4, "tolerance": 0.2}
    one = search_robustness(model, inputs, labels, **options)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert search_robustness(model, inputs, labels, **options).angle_rad == one.angle_rad


def test_finding_nothing_is_said_and_proves_nothing():
    layer, inputs, labels, alpha, _ = linear_problem(0)
    found = search_robustness(layer, inputs, labels, max_angle_rad=alpha / 2, num_steps=5)
    assert found.angle_rad == math.inf
    assert "no error was found" in str(found)
    assert "no proof" in str(found)


def test_grouped_neurons_turn_by_themselves():
    """The fan-in of a grouped transposed convolution is a part of dim 0."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.ConvTranspose1d(4, 2, 3, groups=2, bias=False), nn.Flatten())
    model = model.double()
    nero.project_(model)
    inputs = torch.randn(10, 4, 1, dtype=torch.float64)
    labels = model(inputs).argmax(1)
    found = search_robustness(model, inputs, labels, num_steps=5, num_starts=1)
    turned = found.weights["0.weight"].unflatten(0, (2, -1))
    before = model[0].weight.detach().unflatten(0, (2, -1))
    assert turning_angle(before, turned, fan_in_dims=(1, 3)).max() <= found.angle_rad * (1 + 1e-12)
    torch.testing.assert_close(turned.square().sum((1, 3)), torch.ones(2, 1, dtype=torch.float64))


def test_a_neuron_of_zeros_does_not_turn():
    layer = nn.Linear(2, 3, bias=False)
    layer.weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    found = search_robustness(layer, torch.eye(2), torch.tensor([0, 1]))
    assert 0.785 <= found.angle_rad < 0.79  # as if it were not there: both others are halfway
    assert not found.weights["weight"][2].any()


def test_ends_where_the_dtype_has_no_smaller_angles():
    torch.manual_seed(0)
    layer = nn.Linear(32, 3, bias=False).bfloat16()
    nero.project_(layer)
    inputs = torch.randn(400, 32).bfloat16()
    best = layer(inputs).topk(2, dim=1)
    is_clear = best.values[:, 0] > best.values[:, 1]
    found = search_robustness(layer, inputs[is_clear], best.indices[is_clear, 0], num_starts=1)
    assert 0 < found.angle_rad < 0.01
    assert found.margin < 0


def test_says_what_is_wrong():
    layer, inputs, labels, _, _ = linear_problem(0)
    with pytest.raises(ValueError, match="30 of 30 samples are already misclassified"):
        search_robustness(layer, torch.full_like(inputs, math.nan), labels)
    with pytest.raises(ValueError, match="of 30 samples are already misclassified"):
        search_robustness(layer, inputs, (labels + 1) % 4)
    with pytest.raises(ValueError, match="max_angle_rad must be above 0"):
        search_robustness(layer, inputs, labels, max_angle_rad=0.0)
    with pytest.raises(ValueError, match="tolerance must be above 0 and below 1, but is 0"):
        search_robustness(layer, inputs, labels, tolerance=0)
    with pytest.raises(ValueError, match="num_steps must be a whole number from 1 on, but is 0"):
        search_robustness(layer, inputs, labels, num_steps=0)
    layer.weight.data.add_(0.1)
    with pytest.raises(ValueError, match=r"`weight` do not have mean zero.*project_"):
        search_robustness(layer, inputs, labels)
    layer.weight.requires_grad_(False)
    with pytest.raises(ValueError, match="no neurons that could be turned"):
        search_robustness(layer, inputs, labels)
