"""Learning-rate schedules: a factor on the initial rate, as a function of the epoch.

Each is a small value that prints as itself, so that a record says which one was used. Milestones are
fractions of the whole budget, so that a shortened recipe keeps the paper's shape; ``Decay`` alone goes
by epochs.
"""

import ast
import math
from dataclasses import dataclass
from typing import Protocol

from nero.schedule import warmup_cosine
from nero_lab.engine.errors import ConfigError


class Schedule(Protocol):
    """A factor on the initial learning rate."""

    def __call__(self, epoch: float, num_epochs: float) -> float:
        """Return the factor at a (fractional) epoch of a run of ``num_epochs``."""


@dataclass(frozen=True)
class Constant:
    """The same rate throughout, after an optional linear warm-up.

    Example:
        >>> Constant()(3, 10), Constant(warmup=0.2)(1, 10)
        (1.0, 0.5)
    """

    warmup: float = 0.0

    def __call__(self, epoch: float, num_epochs: float) -> float:
        """Return the factor."""
        return _ramp(epoch, self.warmup * num_epochs)


@dataclass(frozen=True)
class Decay:
    """Multiply by ``factor`` at the end of every epoch.

    Example:
        >>> Decay(0.5)(2.7, 10)
        0.25
    """

    factor: float

    def __call__(self, epoch: float, num_epochs: float) -> float:
        """Return the factor."""
        return self.factor ** math.floor(epoch)


@dataclass(frozen=True)
class Steps:
    """A linear warm-up, then a factor at each milestone.

    Example:
        >>> schedule = Steps(at=(0.5, 0.75), factor=0.2, warmup=0.1)
        >>> [round(schedule(epoch, 100), 3) for epoch in (5, 20, 50, 80)]
        [0.5, 1.0, 0.2, 0.04]
    """

    at: tuple[float, ...]
    factor: float
    warmup: float = 0.0

    def __call__(self, epoch: float, num_epochs: float) -> float:
        """Return the factor."""
        passed = sum(epoch >= milestone * num_epochs for milestone in self.at)
        return _ramp(epoch, self.warmup * num_epochs) * self.factor**passed


@dataclass(frozen=True)
class Cosine:
    """A linear warm-up, then half a cosine down to zero.

    Example:
        >>> schedule = Cosine(warmup=0.1)
        >>> [round(schedule(epoch, 10), 3) for epoch in (0.5, 1, 5.5, 10)]
        [0.5, 1.0, 0.5, 0.0]
    """

    warmup: float = 0.0

    def __call__(self, epoch: float, num_epochs: float) -> float:
        """Return the factor."""
        return warmup_cosine(epoch, num_epochs, self.warmup)


@dataclass(frozen=True)
class Triangle:
    """Up linearly until half of the budget, and down again.

    Example:
        >>> [Triangle()(epoch, 100) for epoch in (25, 50, 100)]
        [0.5, 1.0, 0.0]
    """

    def __call__(self, epoch: float, num_epochs: float) -> float:
        """Return the factor."""
        return 2 * min(epoch, num_epochs - epoch) / num_epochs


@dataclass(frozen=True)
class Linear:
    """Down linearly to zero.

    Example:
        >>> Linear()(25, 100)
        0.75
    """

    def __call__(self, epoch: float, num_epochs: float) -> float:
        """Return the factor."""
        return 1 - epoch / num_epochs


_SCHEDULES = {kind.__name__: kind for kind in (Constant, Decay, Steps, Cosine, Triangle, Linear)}


def parse_schedule(text: str) -> Schedule:
    """Return the schedule that a text writes, as records write it.

    Example:
        >>> parse_schedule("Cosine(warmup=0.1)")
        Cosine(warmup=0.1)
        >>> parse_schedule("Linear")
        Linear()

    Raises:
        ConfigError: if there is no such schedule, or its factor is not a number all over a run.
    """
    try:
        call = ast.parse(text, mode="eval").body
        call = call if isinstance(call, ast.Call) else ast.Call(call, [], [])
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        positional = [ast.literal_eval(value) for value in call.args]
        named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        schedule: Schedule = _SCHEDULES[name](*positional, **named)
        factors = [schedule(epoch, 8) for epoch in (0, 0.5, 4, 7.5, 8)]
        if not all(0 <= factor < math.inf for factor in factors):
            raise ValueError("its factor must be finite and not negative")
    except (ArithmeticError, LookupError, SyntaxError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{text!r} is not a schedule such as Cosine(warmup=0.1), with one of "
            f"{', '.join(_SCHEDULES)}: {error}"
        ) from error
    return schedule


def _ramp(epoch: float, length: float) -> float:
    return min(epoch / length, 1.0) if length else 1.0
