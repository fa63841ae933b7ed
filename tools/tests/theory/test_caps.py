"""The measure of a cap against closed forms, scipy, quadrature and dice."""

import math

import hypothesis.strategies as st
import mpmath
import pytest
import torch
from hypothesis import given, settings
from scipy import special

from nero_tools.theory import log_cap_lower_bound, log_cap_measure

RIGHT = math.pi / 2
angles = st.floats(1e-6, RIGHT)
sphere_dims = st.integers(1, 10**6)


@pytest.mark.parametrize("angle", [1e-6, 1e-3, 0.1, 1.0, RIGHT, 2.0, 3.0, math.pi])
@pytest.mark.parametrize(
    ("sphere_dim", "share"),
    [
        (1, lambda a: a / math.pi),
        (2, lambda a: math.sin(a / 2) ** 2),  # Archimedes: (1 - cos a) / 2
        (3, lambda a: (2 * a - math.sin(2 * a)) / (2 * math.pi)),
    ],
)
def test_low_dims_have_closed_forms(angle, sphere_dim, share):
    # 2a - sin(2a) keeps only 1e-16 / a^2 of its digits; the others keep all.
    tolerance = 1e-13 + (1e-15 / angle**2 if sphere_dim == 3 else 0)
    if tolerance < 1e-3:
        got = math.exp(log_cap_measure(angle, sphere_dim=sphere_dim))
        assert got == pytest.approx(share(angle), rel=tolerance)


def reference(angle, sphere_dim):
    """Integrate sin^(p-1) over the cap in 30 digits, relative to its largest value."""
    with mpmath.workdps(30):
        angle, power = mpmath.mpf(angle), sphere_dim - 1
        top = mpmath.sin(angle)
        # Further from the rim than this, the integrand is below exp(-60) of its value there.
        slope = max(power * mpmath.cot(angle), mpmath.sqrt(power))
        width = angle if slope * angle < 60 else 60 / slope
        points = [angle - width * k / 8 for k in range(8, -1, -1)]
        part = mpmath.quad(lambda t: (mpmath.sin(t) / top) ** power, points)
        whole = mpmath.sqrt(mpmath.pi) * mpmath.gammaprod([power / 2 + 0.5], [power / 2 + 1])
        return power * mpmath.log(top) + mpmath.log(part) - mpmath.log(whole)


def near_the_switch(sphere_dim):
    """Angles around which one continued fraction replaces another."""
    return [RIGHT - x / math.sqrt(sphere_dim) for x in (1.5, 1.7, 1.75, 2.0, 6.0)]


@pytest.mark.parametrize("sphere_dim", [1, 2, 5, 39, 40, 41, 766, 10**4, 999_999, 10**6])
def test_agrees_with_quadrature_where_floats_end(sphere_dim):
    sometimes = near_the_switch(sphere_dim) if sphere_dim > 20 else []
    for angle in (1e-6, 1e-3, 0.05, 0.7, 1.3, RIGHT - 1e-3, RIGHT - 1e-9, RIGHT, *sometimes):
        got = log_cap_measure(angle, sphere_dim=sphere_dim)
        want = float(reference(angle, sphere_dim))
        # Promised is 1e-10; what is reached is a few roundings of the largest term.
        assert got == pytest.approx(want, rel=1e-13), angle


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.floats(0.0, 20.0), sphere_dims)
def test_agrees_with_scipy_where_scipy_does_not_underflow(distance, sphere_dim):
    # In high dims nearly everything lies within a few 1/sqrt(dims) of a right angle.
    angle = max(RIGHT - distance / math.sqrt(sphere_dim), 0.05)
    # The complement keeps the digits of the cosine, near a right angle.
    if angle < 0.8:
        share = special.betainc(sphere_dim / 2, 0.5, math.sin(angle) ** 2) / 2
    else:
        share = special.betaincc(0.5, sphere_dim / 2, math.cos(angle) ** 2) / 2
    assert share > 1e-290
    got = log_cap_measure(angle, sphere_dim=sphere_dim)
    assert got == pytest.approx(math.log(share), rel=1e-10)


@pytest.mark.parametrize(("angle", "sphere_dim"), [(0.5, 1), (0.8, 3), (1.2, 6), (2.0, 4)])
def test_random_points_fall_into_the_cap_as_often(angle, sphere_dim):
    generator = torch.Generator().manual_seed(0)
    num = 200_000
    points = torch.randn(num, sphere_dim + 1, generator=generator, dtype=torch.float64)
    inside = points[:, 0] >= math.cos(angle) * points.norm(dim=1)
    share = math.exp(log_cap_measure(angle, sphere_dim=sphere_dim))
    # Four standard deviations of the number of points inside.
    assert inside.double().mean().item() == pytest.approx(
        share, abs=4 * math.sqrt(share * (1 - share) / num)
    )


@settings(deadline=None, derandomize=True, max_examples=500)
@given(st.floats(1e-6, math.pi), sphere_dims)
def test_the_papers_bound_never_exceeds_the_measure(angle, sphere_dim):
    exact = log_cap_measure(angle, sphere_dim=sphere_dim)
    assert log_cap_lower_bound(angle, sphere_dim=sphere_dim) <= exact


@settings(deadline=None, derandomize=True, max_examples=200)
@given(angles, angles, sphere_dims)
def test_a_wider_cap_holds_more(one, other, sphere_dim):
    small, large = sorted((one, other))
    wider = log_cap_measure(large, sphere_dim=sphere_dim)
    # Two computations, each with its own roundings.
    assert log_cap_measure(small, sphere_dim=sphere_dim) <= wider + 1e-13 * abs(wider)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.floats(0.01, RIGHT), st.integers(0, 1000))
def test_two_opposite_caps_are_everything(angle, sphere_dim):
    parts = (angle, math.pi - angle)
    shares = [math.exp(log_cap_measure(part, sphere_dim=sphere_dim)) for part in parts]
    assert sum(shares) == pytest.approx(1, rel=1e-12)


def test_the_ends():
    assert log_cap_measure(0.0, sphere_dim=3) == -math.inf
    assert log_cap_lower_bound(0.0, sphere_dim=3) == -math.inf
    assert log_cap_measure(math.pi, sphere_dim=3) == 0
    assert log_cap_measure(RIGHT, sphere_dim=10**6) == pytest.approx(math.log(0.5), rel=1e-12)
    assert log_cap_lower_bound(math.pi, sphere_dim=3) == math.log(0.5)
    # Two points: a neuron of fan-in two, balanced.
    assert log_cap_measure(0.1, sphere_dim=0) == log_cap_lower_bound(0.1, sphere_dim=0)
    assert log_cap_measure(math.pi, sphere_dim=0) == 0
