"""Is the angle right? Against 60 digits of mpmath, also where arccos has nothing left to say."""

import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nero.diagnostics import turning_angle
from nero.diagnostics.angle import measure, neuron_rows, with_shared_angles
from nero.layout import neurons

mpmath.mp.dps = 60


def exact_angle(u, v):
    u, v = ([mpmath.mpf(x) for x in w.tolist()] for w in (u, v))
    dot, uu, vv = mpmath.fdot(u, v), mpmath.fdot(u, u), mpmath.fdot(v, v)
    return mpmath.acos(dot / mpmath.sqrt(uu * vv))


@settings(deadline=None, max_examples=60)
@given(
    exponent=st.floats(-15, 0.4),
    stretch=st.floats(0.01, 100),
    fan_in=st.integers(2, 40),
    seed=st.integers(0, 2**31),
)
def test_any_angle_at_any_length(exponent, stretch, fan_in, seed):
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(1, fan_in, dtype=torch.float64, generator=generator)
    d = torch.randn(1, fan_in, dtype=torch.float64, generator=generator)
    v = stretch * (u + 10**exponent * d)
    got = turning_angle(u, v, fan_in_dims=(1,)).item()
    # Rounding v moves it by about 1e-16, and so does every operation; nothing is lost beyond that.
    assert abs(got - exact_angle(u[0], v[0])) < 1e-14


@pytest.mark.parametrize("angle", [0.0, 1e-300, 1e-12, 1e-8, 1e-4, 1.0, math.pi - 1e-8, math.pi])
def test_known_angles_in_a_plane(angle):
    u = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    v = torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    assert turning_angle(u, v, fan_in_dims=(1,)).item() == pytest.approx(
        angle, rel=1e-12, abs=1e-15
    )


def test_arccos_would_see_nothing():
    u = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    v = torch.tensor([[1.0, 1e-9]], dtype=torch.float64)
    assert torch.acos(torch.nn.functional.cosine_similarity(u, v)).item() == 0.0
    assert turning_angle(u, v, fan_in_dims=(1,)).item() == pytest.approx(1e-9, rel=1e-15)


def test_length_alone_is_no_turn_and_the_same_bits_are_exactly_none():
    u = torch.randn(50, 30, dtype=torch.float64)
    assert turning_angle(u, 3.7 * u, fan_in_dims=(1,)).max() < 1e-15
    assert torch.equal(turning_angle(u, u.clone(), fan_in_dims=(1,)), torch.zeros(50, 1).double())


def test_zero_and_not_finite_neurons_have_no_angle():
    u = torch.ones(4, 3)
    v = torch.tensor([[1.0, 1, 2], [0, 0, 0], [math.nan, 1, 1], [math.inf, 1, 1]])
    for a, b in ((u, v), (v, u)):
        angles = turning_angle(a, b, fan_in_dims=(1,))
        assert angles.isnan().flatten().tolist() == [False, True, True, True]


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        (neurons(0), (5, 7)),
        (neurons(1), (7, 5)),
        (neurons(0), (4, 3, 2, 2)),
        (neurons(1, num_groups=2), (6, 4, 3)),
        (neurons(0, 1), (3, 4, 5)),
        (neurons(0, 2), (3, 5, 4)),
    ],
)
def test_rows_are_the_neurons(layout, shape):
    found = layout.at(shape)
    before, after = torch.randn(shape), torch.randn(shape)
    found = layout.at(shape)
    rows = neuron_rows(before, found), neuron_rows(after, found)
    assert rows[0].shape == (found.num_neurons, found.fan_in)
    views = found.view(before), found.view(after)
    wanted = turning_angle(*views, fan_in_dims=found.fan_in_dims).flatten()
    torch.testing.assert_close(measure(*rows, None).angle, wanted, rtol=1e-14, atol=0)


def test_blocks_do_not_matter(monkeypatch):
    before, after, grad = torch.randn(3, 29, 11).unbind()
    whole = measure(before, after, grad)
    monkeypatch.setattr("nero.diagnostics.angle._BLOCK", 25)
    for a, b in zip(whole, measure(before, after, grad), strict=True):
        # Another order of summation; without a target, that is NaN.
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-14, equal_nan=True)


@pytest.mark.parametrize("size", [1e-9, 1e-4, 1e-1, 10.0])
def test_angles_from_sums_of_parts(size):
    """What ranks do that share neurons: each sums over its part of the fan-in."""
    before = torch.randn(40, 24, dtype=torch.float64)
    after = before + size * torch.randn_like(before)
    parts = [
        measure(b, a, None) for b, a in zip(before.split(7, 1), after.split(7, 1), strict=True)
    ]
    sums = type(parts[0])(*(sum(columns) for columns in zip(*parts, strict=True)))
    wanted = measure(before, after, None).angle
    torch.testing.assert_close(with_shared_angles(sums).angle, wanted, rtol=1e-12, atol=1e-15)


def test_a_half_precision_gradient_that_is_zero_or_not_finite_is_noticed():
    before, after = torch.randn(2, 4, 6).bfloat16().unbind()
    grad = torch.randn(4, 6).bfloat16()
    grad[0], grad[1, 2], grad[2, 3] = 0.0, math.nan, math.inf
    grad_size = measure(before, after, grad).grad_size
    assert grad_size[0] == 0
    assert grad_size.isfinite().tolist() == [True, False, False, True]
    assert grad_size[3] > 0


def test_a_neuron_that_ranks_share_and_that_became_zero_has_no_angle():
    turns = with_shared_angles(
        measure(torch.ones(2, 3), torch.tensor([[0.0] * 3, [2.0] * 3]), None)
    )
    assert turns.angle.isnan().tolist() == [True, False]


def test_a_gradient_whose_square_is_too_small_for_its_dtype_is_not_zero():
    weight, grad = torch.ones(1, 3), torch.full((1, 3), 1e-30)
    assert grad.square().sum() == 0
    assert measure(weight, weight, grad).grad_size > 0
