"""What a sampled step did to neurons: plain values that print as a table and as sentences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from nero.diagnostics.summary import HISTOGRAM_EDGES, QUANTILES
from nero.numbers import json_values
from nero.tables import aligned

COLUMNS = (
    *("layer", "neurons", "min", "median", "max", "max/lr", "change"),
    *("still", "no grad", "too far", "off mean", "off norm"),
)
HARDLY_RAD = 1e-6
"""At this angle per step, a neuron takes at least a million steps to turn by one radian."""
_MAX_SIMILAR = 3


@dataclass(frozen=True)
class Distribution:
    """Summary statistics of one number per neuron; NaN if no neuron has one."""

    num: int
    """The number of neurons with a value: zero and non-finite ones have no angle."""
    mean: float
    min: float
    max: float
    quantiles: tuple[float, ...]
    """At 5, 25, 50, 75 and 95 percent: ``Distribution.SHARES``."""
    histogram: tuple[int, ...]
    """Counts between successive ``Distribution.EDGES``, a quarter of a decade apart. The first bin includes
    zeros, and the last one everything beyond the last edge."""

    SHARES = QUANTILES
    EDGES = HISTOGRAM_EDGES

    @property
    def median(self) -> float:
        """The quantile at 50 percent."""
        return self.quantiles[QUANTILES.index(0.5)]


@dataclass(frozen=True)
class LayerReport:
    """What one step did to one parameter's neurons."""

    name: str
    num_neurons: int
    is_table: bool
    """Whether neurons are rows of an embedding, most of which a batch may not use."""
    fan_in: int
    lr: float
    lr_is_angle: bool
    """Whether the learning rate is the angle of a typical step, as for Nero."""
    too_far: float
    """Turns beyond this angle, in radians, are counted as too far."""
    angle: Distribution
    """The angle by which each neuron turned, in radians."""
    relative_change: Distribution
    """|dw| / |w| of each neuron (Definition 5)."""
    norm: Distribution
    """|w| of each neuron after the step."""
    layer_relative_change: float
    """|dW| / |W| of the whole layer (Equation 2)."""
    mean_drift: float | None
    """The largest |sum of w| / sqrt(fan-in) / |w| of a neuron, the cosine of its angle to a constant.
    ``None`` if means are free."""
    norm_drift: float | None
    """The largest relative error of a neuron's norm. ``None`` if norms are free."""
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
    """Updates of this layer that Nero has skipped so far; ``None`` for other optimizers."""
    tolerance: float
    """Drifts up to this size are rounding errors."""

    @property
    def is_balanced(self) -> bool:
        """Whether every neuron obeys its constraint up to rounding; zero and non-finite ones do not."""
        return not self.num_undefined and self.drift <= self.tolerance

    @property
    def drift(self) -> float:
        """The larger of both drifts; 0 without a constraint."""
        return max(self.mean_drift or 0.0, self.norm_drift or 0.0)

    @property
    def max_over_lr(self) -> float | None:
        """The largest angle over the learning rate; ``None`` if that is zero or not an angle."""
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
    """The number of optimizer steps seen by the monitor, including this one."""
    layers: tuple[LayerReport, ...]
    num_skipped: int | None
    """Number of updates that Nero has skipped so far, in all layers; ``None`` for other optimizers."""

    def __getitem__(self, name: str) -> LayerReport:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(f"{name!r} was not sampled at this step; {self.names} were")

    @property
    def names(self) -> list[str]:
        """The names of the sampled layers."""
        return [layer.name for layer in self.layers]

    def findings(self) -> list[str]:
        """Return one sentence per problem that deserves attention.

        If many layers have the same problem, only the worst is named. Rows of an embedding without a
        gradient are a problem only if no row has one.
        """
        sentences = []
        for check in _CHECKS:
            results = [(check(layer), layer.name) for layer in self.layers]
            problems = [(*problem, name) for problem, name in results if problem is not None]
            more = ""
            if len(problems) > _MAX_SIMILAR:
                more = f"; {len(problems) - 1:,} other layers are affected less"
                problems = [max(problems, key=lambda problem: problem[0])]
            sentences += [f"{name}: {sentence}{more}" for _, sentence, name in problems]
        return sentences

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON types; numbers that are not finite become ``None``."""
        plain: dict[str, Any] = json_values(self)
        return plain

    def __str__(self) -> str:
        table = aligned([COLUMNS, *(layer.cells() for layer in self.layers)])
        return "\n".join([f"step {self.step:,}, angles in radians", table, *self.findings()])


def read_summary(numbers: Mapping[str, Sequence[float]], **other_fields: Any) -> LayerReport:
    """Make a report from the numbers computed by `summarize` and its other fields."""
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
    return LayerReport(**fields, **other_fields)


def number(value: float | None, *, tolerance: float = 0.0) -> str:
    """Format a number with two digits: a dash for NaN, 0 within the tolerance."""
    if value is None or value != value:
        return "-"
    return f"{0 if value <= tolerance else value:.2g}"


_Check: TypeAlias = Callable[[LayerReport], tuple[float, str] | None]
"""Returns the severity of a layer's problem and a sentence, or ``None`` if it has no problem."""


def _counted(field: str, what: str) -> _Check:
    def check(layer: LayerReport) -> tuple[float, str] | None:
        num = getattr(layer, field)
        sentence = f"{num:,} of {layer.num_neurons:,} neurons {what}"
        return (num / layer.num_neurons, sentence) if num else None

    return check


def _left_out(field: str, what: str) -> _Check:
    """Count neurons that were left out, but not the rows of a table that a batch doesn't use."""
    counted = _counted(field, what)

    def check(layer: LayerReport) -> tuple[float, str] | None:
        is_expected = layer.is_table and getattr(layer, field) < layer.num_neurons
        return None if is_expected else counted(layer)

    return check


def _too_far(layer: LayerReport) -> tuple[float, str] | None:
    ratio = f" ({layer.max_over_lr:.0f} x lr)" if layer.max_over_lr is not None else ""
    what = f"turned by more than {layer.too_far:.2g} rad, up to {layer.angle.max:.2g}{ratio}"
    return _counted("num_too_far", what)(layer)


def _hardly(layer: LayerReport) -> tuple[float, str] | None:
    median = layer.angle.median
    sentence = f"half of the neurons turned by {median:.0e} rad or less"
    return (-median, sentence) if 0 < median < HARDLY_RAD else None


def _drift(layer: LayerReport) -> tuple[float, str] | None:
    sentence = f"a neuron is off its constraint by {layer.drift:.1e}"
    return (layer.drift, sentence) if layer.drift > layer.tolerance else None


_CHECKS = (  # in the order in which findings are listed
    _counted("num_nonfinite_grad", "had NaN or inf in their gradient"),
    _counted("num_undefined", "are zero or not finite"),
    _too_far,
    _left_out("num_zero_grad", "had no gradient"),
    _left_out("num_still", "did not turn"),
    _hardly,
    _drift,
)
