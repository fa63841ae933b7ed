r"""From an angle to a bound on the error rate (Theorem 1, Equations 4 and 5, put together).

An alpha-robust solution is a product of caps, so that K of them that do not intersect have a known
measure (Equation 5). A version space of that measure bounds the average error rate of the networks
in it (Theorem 1): the more networks fit the training data, the less had to be learned to find one of
them. The theorem says nothing about a particular one.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from nero.core.arguments import kind_of, real_number
from nero_tools.theory.weight_space import WeightSpace


class ErrorBound(NamedTuple):
    """The two bounds of an error rate that Theorem 1 gives."""

    linear: float
    """The right side of Equation 4. From one up, the bound is vacuous."""
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
        >>> from nero_tools.theory import pac_bayes_bound
        >>> bound = pac_bayes_bound(math.log(0.001), num_samples=100)
        >>> round(bound.linear, 4), round(bound.error, 4)
        (0.1536, 0.1423)
    """
    if not 2 <= real_number("num_samples", num_samples) < math.inf:  # NaN is neither
        raise ValueError(f"num_samples must be a finite number from 2 on, but is {num_samples}")
    if not 0 < real_number("delta", delta) <= 1:
        raise ValueError(f"delta must be above 0 and at most 1, but is {delta!r}")
    if not real_number("log_measure", log_measure) <= 0:
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
        >>> from nero_tools.theory import samples_needed
        >>> samples_needed(math.log(0.001))
        15
    """
    _check_below(below)

    def is_enough(num: int) -> bool:
        return pac_bayes_bound(log_measure, num_samples=num, delta=delta).linear < below

    enough = 2
    while not is_enough(enough):
        if enough > 1e300:
            raise ValueError(
                "a version space of measure zero needs infinitely many samples: log_measure must be finite"
            )
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
        delta: as in [`pac_bayes_bound`][nero_tools.theory.pac_bayes_bound].
        below: the error rate to come down to; at one the bound stops being vacuous.

    Example:
        >>> from nero_tools.theory import log_solutions_needed
        >>> round(log_solutions_needed(-1375.7, num_samples=1000), 1)
        387.3
    """
    _check_below(below)
    bound = pac_bayes_bound(log_measure, num_samples=num_samples, delta=delta)
    return max(0.0, (bound.linear - below) * (num_samples - 1))


def _check_below(below: float) -> None:
    if not real_number("below", below) > 0:  # as NaN is not
        raise ValueError(f"below must be above 0, but is {below!r}")


def log_version_space(
    space: WeightSpace, *, angle_rad: float, log_solutions: float = 0.0, is_exact: bool = False
) -> float:
    r"""Compute the logarithm of the measure of a version space (Equation 5).

    $$
    \mathbb{P}[V_S] = K \cdot \mathbb{P}[\mathrm{cap}_{d-2}(\alpha)]^m
      \geq \frac{K}{2^m} \sin^{m(d-2)} \frac{\alpha}{2}
    $$

    Layers of other fan-ins multiply.

    Args:
        space: where the neurons live; [`weight_space`][nero_tools.theory.weight_space] reads it off a
            model.
        angle_rad: alpha, by which all neurons may turn at once.
        log_solutions: the logarithm of K, the number of solutions that do not intersect.
        is_exact: whether to compute the middle, or the paper's lower bound on the right.

    Raises:
        ValueError: if there is less than one solution, or so many that together they would be
            more than everything.

    Example:
        >>> from nero_tools.theory import Spheres, WeightSpace, log_version_space
        >>> space = WeightSpace((Spheres(num_neurons=10, fan_in=100),))
        >>> round(log_version_space(space, angle_rad=0.5), 1)
        -1375.7
        >>> round(log_version_space(space, angle_rad=0.5, is_exact=True), 1)
        -751.3
    """
    if not isinstance(space, WeightSpace):
        raise TypeError(
            f"space must be a WeightSpace, not {kind_of(space)}: see weight_space(model)"
        )
    if not 0 <= real_number("log_solutions", log_solutions) < math.inf:
        raise ValueError(
            f"log_solutions is the logarithm of a number from one on, so it must be 0 or more, but is "
            f"{log_solutions!r}"
        )
    log_measure = log_solutions + space.log_measure(angle_rad, is_exact=True)
    if log_measure > 1e-9 + 1e-12 * log_solutions:  # rounding aside
        raise ValueError(
            f"exp({log_solutions:.6g}) solutions of angle {angle_rad:g} do not fit without intersecting: "
            f"log_solutions must be at most {log_solutions - log_measure:.6g}"
        )
    if is_exact:
        return min(log_measure, 0.0)
    return log_solutions + space.log_measure(angle_rad)


@dataclass(frozen=True)
class GeneralisationBound:
    """What [`generalisation_bound`][nero_tools.theory.generalisation_bound] returns."""

    space: WeightSpace
    num_samples: int
    angle_rad: float
    delta: float
    log_solutions: float
    is_exact: bool

    def __post_init__(self) -> None:
        _ = self.error_bound  # raises if an argument is wrong

    @property
    def log_measure(self) -> float:
        """The logarithm of the measure of the version space (Equation 5)."""
        return log_version_space(
            self.space,
            angle_rad=self.angle_rad,
            log_solutions=self.log_solutions,
            is_exact=self.is_exact,
        )

    @property
    def error_bound(self) -> ErrorBound:
        """The bound itself."""
        return pac_bayes_bound(self.log_measure, num_samples=self.num_samples, delta=self.delta)

    @property
    def samples_needed(self) -> int:
        """Samples from which on the bound is not vacuous, for the same angle and solutions."""
        return samples_needed(self.log_measure, delta=self.delta)

    @property
    def log_solutions_needed(self) -> float:
        """The ln K beyond which the bound is not vacuous, with as many samples as there are.

        So many may not fit: see [`log_version_space`][nero_tools.theory.log_version_space].
        """
        return log_solutions_needed(
            self.space.log_measure(self.angle_rad, is_exact=self.is_exact),
            num_samples=self.num_samples,
            delta=self.delta,
        )


def generalisation_bound(
    space: WeightSpace,
    *,
    num_samples: int,
    angle_rad: float,
    delta: float = 0.05,
    log_solutions: float = 0.0,
    is_exact: bool = False,
) -> GeneralisationBound:
    r"""Bound the average error rate of the networks that fit the data (the end of section 6.2).

    $$
    \varepsilon(V_S) \leq \frac{m \ln 2 + m (d-2) \ln \frac{1}{\sin \frac{\alpha}{2}}
      + \ln \frac{2n}{\delta} - \ln K}{n - 1}
    $$

    With ``is_exact``, the exact measure of the caps stands in for the first two terms, and the
    bound is smaller.

    Args:
        space: where the neurons live: m neurons of fan-in d, or the layers of a model.
        num_samples: n.
        angle_rad: alpha, by which all neurons may turn at once without an error on the training
            data.
        delta: as in [`pac_bayes_bound`][nero_tools.theory.pac_bayes_bound].
        log_solutions: the logarithm of K. It cannot be measured yet; zero, for one solution, is
            safe.
        is_exact: whether to take the exact measure of the caps.

    Note:
        The bound needs an alpha for which robustness is *known*. What
        [`search_robustness`][nero_tools.theory.search_robustness] finds is an upper bound of alpha, and
        puts a number here that is too small.

    Raises:
        ValueError: if so many solutions of that angle do not fit into the space.

    Example:
        >>> from nero_tools.theory import generalisation_bound, weight_space
        >>> space = weight_space(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)))
        >>> bound = generalisation_bound(space, num_samples=1000, angle_rad=0.5)
        >>> round(bound.error_bound.linear, 3), bound.error_bound.is_vacuous, bound.samples_needed
        (0.209, False, 209)
    """
    return GeneralisationBound(space, num_samples, angle_rad, delta, log_solutions, is_exact)
