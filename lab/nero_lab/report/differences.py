"""Whether one optimizer is better than another: paired differences over the seeds that both have.

With the same seed, both see the same batches and start from the same weights, so pairing removes much of
the noise. A difference counts if the t-interval of its mean excludes zero.
"""

import math
from collections.abc import Iterable
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from nero_lab.report.rates import Rate

CONFIDENCE = 0.95
"""The confidence level of a difference's interval, if only one is looked at."""

MIN_SEEDS = 3
"""Seeds that all scores in a comparison must share for an outcome: fewer show only a tendency."""

Comparison = Literal["better", "worse", "inconclusive"]


class Difference(NamedTuple):
    """How much better one score is than another, over seeds: positive is better for every metric."""

    mean: float
    low: float
    high: float
    num_seeds: int


def difference(rate: Rate, other: Rate, confidence: float = CONFIDENCE) -> Difference:
    """Return one score's mean advantage over another, with its t-interval.

    With one seed, the interval is infinitely wide. Without a seed that both finished, the mean is NaN.
    """
    seeds = [seed for seed in rate.badness_by_seed if seed in other.badness_by_seed]
    pairs = np.array([(other.badness_by_seed[s], rate.badness_by_seed[s]) for s in seeds])
    pairs = pairs.reshape(-1, 2)
    gains = np.subtract(*pairs[np.isfinite(pairs).all(axis=1)].T)
    if not len(gains):
        return Difference(math.nan, -math.inf, math.inf, 0)
    mean, error = float(gains.mean()), math.inf
    if len(gains) > 1:
        spread = float(gains.std(ddof=1)) / math.sqrt(len(gains))
        error = _quantile(confidence, len(gains) - 1) * spread
    return Difference(mean, mean - error, mean + error, len(gains))


@cache
def _quantile(confidence: float, degrees: int) -> float:
    return float(stats.t.ppf((1 + confidence) / 2, degrees))


def against(rate: Rate, other: Rate, confidence: float = CONFIDENCE) -> Comparison:
    """Compare two scores.

    With fewer than three shared seeds, only the mean difference counts, and it shows at most a tendency.
    An optimizer whose runs all diverged is worse than one whose runs all finished. If only some runs
    diverged, that may be chance, and the other seeds are a biased sample: the result is inconclusive.
    """
    diverged = [each.num_diverged / each.num_seeds for each in (rate, other)]
    if any(diverged):
        return "better" if diverged == [0, 1] else "worse" if diverged == [1, 0] else "inconclusive"
    found = difference(rate, other, confidence)
    is_leaning = shared_seeds([rate, other]) < MIN_SEEDS
    low, high = (found.mean, found.mean) if is_leaning else (found.low, found.high)
    return "better" if low > 0 else "worse" if high < 0 else "inconclusive"


def shared_seeds(rates: Iterable[Rate]) -> int:
    """Return the number of seeds that all scores share, or zero if there are no scores."""
    seeds = [set(rate.badness_by_seed) for rate in rates]
    return len(set.intersection(*seeds)) if seeds else 0
