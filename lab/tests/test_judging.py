"""The rule by which optimizers are compared: its intervals, and how often it is wrong."""

import math
from types import SimpleNamespace

import pytest
from scipy import stats

from nero_lab.report.differences import against, difference, shared_seeds
from nero_lab.report.simulation import error_rates


def rate(*badness: float, seeds: tuple[int, ...] = ()) -> SimpleNamespace:
    by_seed = dict(zip(seeds or range(len(badness)), badness, strict=True))
    num_diverged = sum(map(math.isinf, badness))
    return SimpleNamespace(
        badness_by_seed=by_seed,
        num_seeds=len(by_seed),
        num_diverged=num_diverged,
        num_rates=1,
        num_stopped=0,
    )


def test_interval_is_that_of_a_paired_t_test() -> None:
    mine, theirs = (10.0, 11.0, 10.5, 12.0), (11.5, 11.8, 12.5, 12.9)
    wanted = stats.ttest_rel(theirs, mine)
    low, high = wanted.confidence_interval(0.9)
    found = difference(rate(*mine), rate(*theirs), confidence=0.9)
    assert found == pytest.approx((1.3, low, high, 4))


def test_pairs_decide_where_ranges_overlap() -> None:
    mine, theirs = rate(10.0, 20.0, 30.0), rate(11.0, 21.1, 31.2)
    assert against(mine, theirs) == "better"
    assert against(theirs, mine) == "worse"
    # The same scores, given to other seeds.
    assert against(mine, rate(21.1, 31.2, 11.0)) == "inconclusive"


def test_only_seeds_that_both_have_are_compared() -> None:
    mine, theirs = rate(1.0, 1.1, 1.2, seeds=(0, 1, 2)), rate(2.0, 2.1, 2.2, seeds=(2, 3, 4))
    assert difference(mine, theirs).num_seeds == shared_seeds([mine, theirs]) == 1
    assert difference(mine, rate(2.0, seeds=(7,))).num_seeds == 0
    assert against(mine, rate(2.0, seeds=(7,))) == "inconclusive"
    assert shared_seeds([]) == 0


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ((1.0,), (math.inf,), "better"),
        ((1.0, 1.0, 1.0), (math.inf,) * 3, "better"),
        ((math.inf,) * 3, (1.0, 1.0, 1.0), "worse"),
        ((1.0, 1.0, 1.0), (2.0, 2.1, math.inf), "inconclusive"),
        ((math.inf,) * 3, (math.inf,) * 3, "inconclusive"),
    ],
)
def test_runs_that_diverged(
    mine: tuple[float, ...], theirs: tuple[float, ...], expected: str
) -> None:
    assert against(rate(*mine), rate(*theirs)) == expected


@pytest.mark.parametrize("num_rates", [1, 3])
@pytest.mark.parametrize("num_seeds", [3, 5])
def test_equal_optimizers_are_decided_upon_in_one_claim_of_twenty_at_most(
    num_seeds: int, num_rates: int
) -> None:
    found = error_rates(num_seeds=num_seeds, num_rates=num_rates)
    assert found.held <= 0.05
    assert 0 < found.did_not_hold <= 0.05
