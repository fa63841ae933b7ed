"""What a sampled step did to one layer, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nero.diagnostics.number import number
from nero.diagnostics.summary import HISTOGRAM_EDGES, QUANTILES

COLUMNS = (
    *("layer", "neurons", "min", "median", "max", "max/lr", "change"),
    *("still", "no grad", "too far", "off mean", "off norm"),
)


@dataclass(frozen=True)
class Distribution:
    """One number per neuron, summarised. NaN where there is no neuron to summarise."""

    num: int
    """How many neurons have such a number: zero and non-finite ones have no angle."""
    mean: float
    min: float
    max: float
    quantiles: tuple[float, ...]
    """At 5, 25, 50, 75 and 95 percent: ``Distribution.SHARES``."""
    histogram: tuple[int, ...]
    """Counts between neighbours of ``Distribution.EDGES``, which are a quarter of a decade apart. Zeros
    are in the first bin, and whatever lies beyond the last is in the last."""

    SHARES = QUANTILES
    EDGES = HISTOGRAM_EDGES

    @property
    def median(self) -> float:
        """The quantile at 50 percent."""
        return self.quantiles[QUANTILES.index(0.5)]


@dataclass(frozen=True)
class LayerReport:
    """What one step did to the neurons of one parameter."""

    name: str
    num_neurons: int
    fan_in: int
    lr: float
    lr_is_angle: bool
    """Whether the rate is the angle of a typical step, as Nero's is."""
    too_far: float
    """Turns beyond this angle are too far, in radians."""
    angle: Distribution
    """By which angle each neuron turned, in radians."""
    relative_change: Distribution
    """|dw| / |w| of each neuron (Definition 5)."""
    norm: Distribution
    """|w| of each neuron after the step."""
    layer_relative_change: float
    """|dW| / |W| of all of them (Equation 2)."""
    mean_drift: float | None
    """How far the least centred neuron is off: |sum of w| / sqrt(fan-in) / |w|, the cosine of its angle to
    a constant. ``None`` if nothing holds means at zero."""
    norm_drift: float | None
    """How far the norm of a neuron is off at most, relative to what it should be. ``None`` if nothing
    holds it."""
    num_still: int
    """Neurons that did not turn: an angle of exactly zero."""
    num_too_far: int
    """Neurons that turned by more than ``too_far``."""
    num_undefined: int
    """Neurons without an angle: zero or not finite, before or after the step."""
    num_zero_grad: int
    """Neurons whose gradient was exactly zero, or missing."""
    num_nonfinite_grad: int
    """Neurons with NaN or inf in their gradient."""
    num_skipped: int | None
    """Updates of this layer that Nero has skipped so far; ``None`` for an optimiser that does not count."""
    tolerance: float
    """Drifts up to here are rounding."""

    @property
    def is_balanced(self) -> bool:
        """Whether every neuron obeys its constraint, as well as its dtype can express.

        A neuron that is zero or not finite does not.
        """
        return not self.num_undefined and self.drift <= self.tolerance

    @property
    def drift(self) -> float:
        """The larger of both drifts; 0 if nothing holds the neurons."""
        return max(self.mean_drift or 0.0, self.norm_drift or 0.0)

    @property
    def max_over_lr(self) -> float | None:
        """The largest angle over the learning rate; ``None`` where that rate is not an angle, or zero."""
        return self.angle.max / self.lr if self.lr_is_angle and self.lr > 0 else None

    def cells(self) -> tuple[str, ...]:
        """Return the row as text, one cell per column."""
        measured = (self.angle.min, self.angle.median, self.angle.max, self.max_over_lr)
        counts = (self.num_still, self.num_zero_grad, self.num_too_far)
        return (
            self.name,
            f"{self.num_neurons:,}",
            *map(number, (*measured, self.layer_relative_change)),
            *(f"{count:,}" for count in counts),
            number(self.mean_drift, tolerance=self.tolerance),
            number(self.norm_drift, tolerance=self.tolerance),
        )


def read_summary(numbers: Mapping[str, Sequence[float]], **known: Any) -> LayerReport:
    """Read what `summarise` has computed; ``known`` are the other fields of the report."""
    fields: dict[str, Any] = {}
    for name, values in numbers.items():
        if len(values) > 1:
            num, mean, low, high, *rest = values
            quantiles, histogram = rest[: len(QUANTILES)], rest[len(QUANTILES) :]
            counts = tuple(map(int, histogram))
            fields[name] = Distribution(int(num), mean, low, high, tuple(quantiles), counts)
        elif name.startswith("num_"):
            fields[name] = int(values[0])
        else:
            is_absent = name.endswith("_drift") and values[0] < 0
            fields[name] = None if is_absent else values[0]
    return LayerReport(**fields, **known)
