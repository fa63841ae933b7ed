"""What a sampled step has shown: plain values that print as a table, and as sentences."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nero.diagnostics.findings import told
from nero.diagnostics.number import number
from nero.diagnostics.summary import (
    DISTRIBUTION_SIZE,
    HISTOGRAM_EDGES,
    NUM_DISTRIBUTIONS,
    QUANTILES,
    read_distribution,
)
from nero.tables import aligned

COLUMNS = (
    *("layer", "neurons", "min", "median", "max", "max/lr", "change"),
    *("still", "no grad", "too far", "off mean", "off norm"),
)


@dataclass(frozen=True)
class Distribution:
    """One number a neuron, summarised. NaN where there is no neuron to summarise."""

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
    """The angle from which on a turn counts as too far, in radians."""
    angle: Distribution
    """Through which angle each neuron turned, in radians."""
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
        """Whether every neuron is where its constraint wants it, as far as its dtype can say.

        A neuron that is zero or not finite is nowhere.
        """
        return not self.num_undefined and self.drift <= self.tolerance

    @property
    def drift(self) -> float:
        """The larger of both drifts; 0 if nothing holds the neurons."""
        return max(self.mean_drift or 0.0, self.norm_drift or 0.0)

    @property
    def max_over_lr(self) -> float | None:
        """The largest angle over the learning rate; ``None`` where that rate is no angle, or zero."""
        return self.angle.max / self.lr if self.lr_is_angle and self.lr > 0 else None

    def cells(self) -> tuple[str, ...]:
        """Return the row as text, one cell a column."""
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


@dataclass(frozen=True)
class TurningReport:
    """What one step did to the sampled layers: print it, or read ``layers``.

    Example:
        >>> from nero.diagnostics import TurningMonitor
        >>> model = nn.Linear(8, 4)
        >>> optimizer = nero.Nero(model, lr=0.01)
        >>> monitor = TurningMonitor(optimizer)
        >>> model(torch.randn(16, 8)).square().mean().backward()
        >>> optimizer.step()
        >>> report = monitor.last_report
        >>> report.step, report["weight"].num_neurons, report["weight"].angle.max < 0.011
        (1, 4, True)
        >>> report.findings()
        []
    """

    step: int
    """The number of optimiser steps that the monitor has seen, this one included."""
    layers: tuple[LayerReport, ...]
    num_skipped: int | None
    """All updates that Nero has skipped so far; ``None`` for an optimiser that does not count."""

    def __getitem__(self, name: str) -> LayerReport:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(f"{name!r} was not sampled at this step, but {self.names} were")

    @property
    def names(self) -> list[str]:
        """The names of the sampled layers."""
        return [layer.name for layer in self.layers]

    def findings(self) -> list[str]:
        """Say in sentences what deserves attention; nothing, if nothing does."""
        return told(self.layers)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON's types; what is not a finite number becomes ``None``."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    def __str__(self) -> str:
        table = aligned([COLUMNS, *(layer.cells() for layer in self.layers)])
        return "\n".join([f"step {self.step:,}, angles in radians", table, *self.findings()])


def read_summary(numbers: Sequence[float], **known: Any) -> LayerReport:
    """Read what `summarise` has packed; ``known`` are the other fields of the report."""
    size = DISTRIBUTION_SIZE
    angle, relative_change, norm = (
        _distribution(numbers[i * size : (i + 1) * size]) for i in range(NUM_DISTRIBUTIONS)
    )
    layer_relative_change, mean_drift, norm_drift, *counts = numbers[NUM_DISTRIBUTIONS * size :]
    still, too_far, undefined, zero_grad, nonfinite_grad = map(int, counts)
    return LayerReport(
        angle=angle,
        relative_change=relative_change,
        norm=norm,
        layer_relative_change=layer_relative_change,
        mean_drift=None if mean_drift < 0 else mean_drift,
        norm_drift=None if norm_drift < 0 else norm_drift,
        num_still=still,
        num_too_far=too_far,
        num_undefined=undefined,
        num_zero_grad=zero_grad,
        num_nonfinite_grad=nonfinite_grad,
        **known,
    )


def _distribution(numbers: Sequence[float]) -> Distribution:
    num, mean, (low, high, *quantiles), histogram = read_distribution(numbers)
    return Distribution(num, mean, low, high, tuple(quantiles), tuple(histogram))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
