"""Equation 5, Theorem 1 and their product, against the formulas as the paper prints them."""

import math

import pytest
import torch
from torch import nn

from nero_tools.theory import (
    Spheres,
    WeightSpace,
    generalisation_bound,
    log_cap_measure,
    log_solutions_needed,
    log_version_space,
    pac_bayes_bound,
    samples_needed,
    weight_space,
)


@pytest.mark.parametrize(
    ("m", "d", "alpha"), [(1, 3, 0.5), (110, 784, 0.1), (10, 2, 1.0), (7, 50, 1.5)]
)
def test_equation_5(m, d, alpha):
    space = WeightSpace((Spheres(m, d),))
    log_k = 0.5
    # A fan-in of two is a departure from the paper: the mean is free, and the sphere a circle.
    p = 1 if d == 2 else d - 2
    want = log_k - m * math.log(2) + m * p * math.log(math.sin(alpha / 2))
    got = log_version_space(space, angle_rad=alpha, log_solutions=log_k)
    assert got == pytest.approx(want, rel=1e-12)
    exact = log_version_space(space, angle_rad=alpha, log_solutions=log_k, is_exact=True)
    assert exact == pytest.approx(log_k + m * log_cap_measure(alpha, sphere_dim=p), rel=1e-12)


@pytest.mark.parametrize("log_measure", [0.0, -1.0, -1e5])
@pytest.mark.parametrize(("n", "delta"), [(2, 0.5), (1000, 0.05), (10**7, 1e-6)])
def test_theorem_1(log_measure, n, delta):
    bound = pac_bayes_bound(log_measure, num_samples=n, delta=delta)
    assert bound.linear == pytest.approx(
        (math.log(2 * n / delta) - log_measure) / (n - 1), rel=1e-12
    )
    # The middle of Equation 4; beyond 30 or so, one less the error rate is not a float64 any more.
    if bound.linear < 30:
        tolerance = 1e-15 / (1 - bound.error)
        assert -math.log1p(-bound.error) == pytest.approx(bound.linear, rel=1e-12, abs=tolerance)
    assert bound.error <= bound.linear


def test_theorem_1_holds_for_lines_through_the_plane():
    """Classify points of a circle by a line through its centre, where everything is known.

    The weight space is the circle of the lines' normals. Points are uniform, so that two lines
    disagree on the angle between their normals over pi.
    """
    generator = torch.Generator().manual_seed(0)
    delta, n, num_fails, num_sets = 0.2, 12, 0, 500
    closest = math.inf
    for _ in range(num_sets):
        points = torch.rand(n, generator=generator, dtype=torch.float64) * 2 * math.pi
        # The true normal points to 0. A normal at phi fits if no point changes sides: either way
        # it may turn until the first point that lies across.
        edges = torch.remainder(points + math.pi / 2, math.pi)
        left, right = edges.min().item(), math.pi - edges.max().item()
        measure = (left + right) / (2 * math.pi)
        error = (left**2 + right**2) / (2 * (left + right)) / math.pi  # mean of |phi| / pi
        bound = pac_bayes_bound(math.log(measure), num_samples=n, delta=delta)
        num_fails += error > bound.error
        closest = min(closest, bound.error / error)
    assert num_fails <= delta * num_sets
    assert closest > 1  # it is loose enough never to fail here


@pytest.mark.parametrize("log_measure", [0.0, -3.0, -1234.5, -1e9])
@pytest.mark.parametrize("below", [0.1, 1.0])
def test_samples_needed_is_the_first_number_that_is_enough(log_measure, below):
    num = samples_needed(log_measure, below=below)
    assert pac_bayes_bound(log_measure, num_samples=num).linear < below
    assert pac_bayes_bound(log_measure, num_samples=num - 1).linear >= below


def test_solutions_needed_bring_the_bound_to_where_it_was_asked():
    log_measure = -5000.0
    log_k = log_solutions_needed(log_measure, num_samples=1000, below=0.3)
    bound = pac_bayes_bound(log_measure + log_k, num_samples=1000)
    assert bound.linear == pytest.approx(0.3, rel=1e-12)
    assert log_solutions_needed(-1.0, num_samples=1000) == 0


def test_the_combined_bound_as_the_paper_prints_it():
    m, d, alpha, n, delta, log_k = 110, 100, 0.3, 5000, 0.01, 40.0
    bound = generalisation_bound(
        WeightSpace((Spheres(m, d),)),
        num_samples=n,
        angle_rad=alpha,
        delta=delta,
        log_solutions=log_k,
    )
    top = m * math.log(2) + m * (d - 2) * math.log(1 / math.sin(alpha / 2))
    want = (top + math.log(2 * n / delta) - log_k) / (n - 1)
    assert bound.error_bound.linear == pytest.approx(want, rel=1e-12)
    assert bound.error_bound.is_vacuous
    assert (
        pac_bayes_bound(bound.log_measure, num_samples=bound.samples_needed, delta=delta).linear < 1
    )


def test_the_exact_cap_gives_a_smaller_bound():
    space = WeightSpace((Spheres(110, 100), Spheres(10, 110)))
    options = {"num_samples": 5000, "angle_rad": 0.3}
    paper = generalisation_bound(space, **options)
    exact = generalisation_bound(space, **options, is_exact=True)
    assert exact.error_bound.linear < paper.error_bound.linear
    assert exact.samples_needed < paper.samples_needed
    assert exact.log_solutions_needed < paper.log_solutions_needed


def test_layers_multiply():
    one, other = Spheres(3, 20), Spheres(5, 9)
    for is_exact in (False, True):
        logs = [
            log_version_space(WeightSpace(spheres), angle_rad=0.4, is_exact=is_exact)
            for spheres in ((one,), (other,), (one, other))
        ]
        assert logs[2] == pytest.approx(logs[0] + logs[1], rel=1e-12)


def test_more_solutions_than_fit_are_refused():
    space = WeightSpace((Spheres(2, 3),))  # two circles: caps of a quarter each, so 16 solutions
    everything = log_version_space(
        space, angle_rad=math.pi / 4, log_solutions=math.log(16), is_exact=True
    )
    assert everything == pytest.approx(0, abs=1e-12)
    with pytest.raises(
        ValueError, match=r"do not fit without intersecting: .* must be at most 2\.7"
    ):
        log_version_space(space, angle_rad=math.pi / 4, log_solutions=math.log(17))


@pytest.mark.parametrize("log_solutions", [-1.0, -math.inf, math.inf, math.nan])
def test_less_than_one_solution_is_none(log_solutions):
    space = WeightSpace((Spheres(2, 3),))
    with pytest.raises(ValueError, match="log_solutions is the logarithm of a number from one on"):
        log_version_space(space, angle_rad=0.1, log_solutions=log_solutions)


def test_as_many_solutions_as_fit_do_fit_in_a_large_space():
    space = WeightSpace((Spheres(10**6, 1000), Spheres(777, 333)))
    everything = -space.log_measure(0.1, is_exact=True)
    for is_exact in (False, True):
        options = {"angle_rad": 0.1, "log_solutions": everything * (1 + 2e-16)}
        assert log_version_space(space, **options, is_exact=is_exact) <= 0


class TestWeightSpace:
    def test_reads_neurons_from_layouts(self):
        model = nn.Sequential(
            nn.Conv2d(3, 8, 5),
            nn.BatchNorm2d(8),
            nn.ConvTranspose2d(8, 6, 3, groups=2),
            nn.Linear(2, 4, bias=False),
            nn.Linear(1, 4, bias=False),
        )
        space = weight_space(model)
        found = [(s.name, s.num_neurons, s.fan_in, s.sphere_dim) for s in space.spheres]
        assert found == [
            ("0.weight", 8, 75, 73),
            ("2.weight", 6, 36, 34),
            ("3.weight", 4, 2, 1),  # mean and norm would leave two points
        ]
        assert dict(space.left_out) == {
            "0.bias": "bias",
            "1.weight": "gain",
            "1.bias": "bias",
            "2.bias": "bias",
            "4.weight": "fan-in 1",
        }
        assert space.num_neurons == 18
        assert space.num_dims == 8 * 73 + 6 * 34 + 4

    def test_obeys_constraints_and_frozen_parameters(self):
        model = nn.Sequential(*(nn.Linear(10, 10, bias=False) for _ in range(4)))
        model[3].weight.requires_grad_(False)
        overrides = [("0.*", {"constraint": "norm"}), ("1.*", {"constraint": "none"})]
        space = weight_space(model, overrides=overrides)
        assert [(s.name, s.sphere_dim) for s in space.spheres] == [("0.weight", 9), ("2.weight", 8)]
        assert dict(space.left_out) == {"1.weight": "norm is free", "3.weight": "frozen"}

    def test_counts_tied_weights_once(self):
        model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20, bias=False))
        model[1].weight = model[0].weight
        assert weight_space(model).num_neurons == 20

    def test_needs_no_storage(self):
        with torch.device("meta"):
            model = nn.Linear(4096, 4096, bias=False)
        assert weight_space(model).num_dims == 4096 * 4094
