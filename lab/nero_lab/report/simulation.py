"""How often the rule is wrong about the claim that one of four equal optimizers is the best."""

from functools import cache
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nero_lab.report.verdicts import leads

NUM_TRIALS = 4000


class ErrorRates(NamedTuple):
    """Fractions of claims that were decided although all optimizers were equal."""

    held: float
    did_not_hold: float


@cache
def error_rates(*, num_seeds: int = 3, num_rates: int = 3, num_optimizers: int = 4) -> ErrorRates:
    """Judge random scores of equal optimizers, each at its best learning rate.

    Effects that a seed has on all optimizers are left out, because they cancel in differences.

    Args:
        num_seeds: seeds per optimizer and learning rate.
        num_rates: learning rates per optimizer, all equally good.
        num_optimizers: number of optimizers, including the favourite.
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
    """Return the learning rate with the best mean, as a row of the table of learning rates."""
    best = scores[scores.mean(axis=1).argmin()]
    return SimpleNamespace(
        badness_by_seed=dict(enumerate(best)),
        num_seeds=len(best),
        num_diverged=0,
        num_stopped=0,
        num_rates=len(scores),
    )
