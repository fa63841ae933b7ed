r"""From the measure of a version space to a bound on its error rate (Theorem 1).

The more networks fit the training data, the less had to be learned to find one of them. The theorem
is about the *average* error rate of all networks that fit, and says nothing about a particular one.
"""

import math
from typing import NamedTuple


class ErrorBound(NamedTuple):
    """The two bounds of an error rate that Theorem 1 gives."""

    linear: float
    """The right side of Equation 4. From one on it says nothing."""
    error: float
    """What the middle of Equation 4 gives, ``1 - exp(-linear)``: less, and always below one."""

    @property
    def is_vacuous(self) -> bool:
        """Whether the paper's bound says no more than that an error rate is at most one."""
        return self.linear >= 1


def pac_bayes_bound(log_measure: float, *, num_samples: int, delta: float = 0.05) -> ErrorBound:
    r"""Bound the average error rate of a version space (Theorem 1, Equation 4).

    For a proportion $1 - \delta$ of training sets of $n$ samples,

    $$
    \varepsilon(V_S) \leq \ln \frac{1}{1 - \varepsilon(V_S)}
      \leq \frac{\ln \frac{1}{\mathbb{P}[V_S]} + \ln \frac{2n}{\delta}}{n - 1}
    $$

    Args:
        log_measure: the logarithm of the measure of the version space.
        num_samples: n, at least two.
        delta: the proportion of training sets for which the bound may fail.

    Example:
        >>> import math
        >>> from nero.theory import pac_bayes_bound
        >>> bound = pac_bayes_bound(math.log(0.001), num_samples=100)
        >>> round(bound.linear, 4), round(bound.error, 4)
        (0.1536, 0.1423)
    """
    if not 2 <= num_samples < math.inf:  # NaN is neither
        raise ValueError(f"num_samples must be a finite number from 2 on, but is {num_samples}")
    if not 0 < delta <= 1:
        raise ValueError(f"delta must be above 0 and at most 1, but is {delta!r}")
    if not log_measure <= 0:
        raise ValueError(
            f"no measure is above one: log_measure must be 0 or less, not {log_measure!r}"
        )
    linear = (-log_measure + math.log(2 * num_samples / delta)) / (num_samples - 1)
    return ErrorBound(linear, -math.expm1(-linear))


def samples_needed(log_measure: float, *, delta: float = 0.05, below: float = 1.0) -> int:
    """Return the fewest samples for which the right side of Equation 4 is less than ``below``.

    For ``below=1`` that is where the bound stops being vacuous. It takes the measure as given; in
    training, more samples leave fewer solutions.

    Example:
        >>> import math
        >>> from nero.theory import samples_needed
        >>> samples_needed(math.log(0.001))
        15
    """
    _check_below(below)

    def is_enough(num: int) -> bool:
        return pac_bayes_bound(log_measure, num_samples=num, delta=delta).linear < below

    enough = 2
    while not is_enough(enough):
        if enough > 1e300:
            raise ValueError("a version space of measure zero needs infinitely many samples")
        enough *= 2
    # The right side falls with n, so that one number divides too few from enough.
    too_few = enough // 2
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if is_enough(middle) else (middle, enough)
    return enough


def log_solutions_needed(
    log_measure: float, *, num_samples: int, delta: float = 0.05, below: float = 1.0
) -> float:
    r"""Return how large ln K must be for the right side of Equation 4 to come down to ``below``.

    $$
    \ln K = \ln \frac{1}{\mathbb{P}} + \ln \frac{2n}{\delta} - (n - 1) \, \mathrm{below}
    $$

    or zero, where one solution is enough.

    Args:
        log_measure: the logarithm of the measure of *one* solution.
        num_samples: n.
        delta: as in [`pac_bayes_bound`][nero.theory.pac_bayes_bound].
        below: the error rate to come down to; at one the bound stops being vacuous.

    Example:
        >>> from nero.theory import log_solutions_needed
        >>> round(log_solutions_needed(-1375.7, num_samples=1000), 1)
        387.3
    """
    _check_below(below)
    bound = pac_bayes_bound(log_measure, num_samples=num_samples, delta=delta)
    return max(0.0, (bound.linear - below) * (num_samples - 1))


def _check_below(below: float) -> None:
    if not below > 0:  # as NaN is not
        raise ValueError(f"below must be above 0, but is {below!r}")
