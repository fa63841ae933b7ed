"""How often the rule would be wrong: the claim that one of four is best, of four that are equal."""

from functools import cache
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nero_lab.report.verdicts import leads

NUM_TRIALS = 4000


class ErrorRates(NamedTuple):
    """Shares of claims that were decided, though no optimizer was better than another."""

    held: float
    did_not_hold: float


@cache
def error_rates(*, num_seeds: int = 3, num_rates: int = 3, num_optimizers: int = 4) -> ErrorRates:
    """Judge made-up scores of equal optimizers, each at the best of its rates.

    The effect of a seed on all scores is left out, since differences cancel it.

    Args:
        num_seeds: seeds of every optimizer at every rate.
        num_rates: rates of every optimizer, all equally good.
        num_optimizers: the favourite among them.
    """
    generator = np.random.default_rng(0)
    counts = {"held": 0, "did not hold": 0}
    for _ in range(NUM_TRIALS):
        scores = generator.normal(size=(num_optimizers, num_rates, num_seeds))
        ran = {str(name): _best(own) for name, own in enumerate(scores)}
        finding = leads("0", ran, num_compared=num_optimizers)
        if finding in counts:
            counts[finding] += 1
    return ErrorRates(*(count / NUM_TRIALS for count in counts.values()))


def _best(scores: NDArray[np.float64]) -> SimpleNamespace:
    """Return the rate with the best mean, as a row of the table of rates."""
    best = scores[scores.mean(axis=1).argmin()]
    return SimpleNamespace(
        badness_by_seed=dict(enumerate(best)),
        num_seeds=len(best),
        num_diverged=0,
        num_stopped=0,
        num_rates=len(scores),
    )
