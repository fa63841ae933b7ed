"""Learning curves: mean and range over seeds, lost runs with a cross where they end."""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from nero_lab.records import RunRecord
from nero_lab.report import paper
from nero_lab.report.pictures import Picture, Track
from nero_lab.report.style import Dashes, cross, order, variant_look
from nero_lab.task import Metric

MAX_RATIO = 1000.0  # of a logarithmic axis
_DEFAULT_DASHES: Dashes = (0, (1, 1))
_MAX_MARKED = 6  # epochs; more need no dots


@dataclass(frozen=True)
class Stray:
    """A run that did not come to its end; ``lost_at`` is None if it may still go on."""

    x: Sequence[float]
    y: Sequence[float]
    lost_at: float | None


@dataclass(frozen=True)
class Curve:
    """One optimiser in one panel."""

    label: str
    colour: str
    dashes: Dashes
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    strays: Sequence[Stray] = ()


def shown_metrics(picture: Picture) -> list[str]:
    """Return the metric of the task, and before it its counterpart in training, if recorded."""
    name = picture.results.task.metric.name
    if picture.by_step or not name.startswith("valid_"):
        return [name]
    counterpart = "train_" + name.removeprefix("valid_")
    runs = picture.results.runs
    recorded = any(counterpart in epoch for run in runs for epoch in run.epochs)
    return [counterpart, name] if recorded else [name]


def label_of(metric: Metric, name: str) -> str:
    """Return the axis label of a metric or of its counterpart in training."""
    if name == metric.name:
        return metric.label
    if "validation" in metric.label:
        return metric.label.replace("validation", "training")
    return f"{metric.label}, training"


def legend_of(track: Track) -> str:
    """Return what a legend says of a track: optimiser, rate, and runs that were lost."""
    text = f"{track.look.title}, lr {track.arm.lr:g}"
    if track.is_default:
        text += " (out of the box)"
    lost = [run for run in track.arm.lost if run.end]
    if lost:
        status = "failed" if any(run.status == "failed" for run in lost) else "diverged"
        epochs = ", ".join(str(math.ceil(run.end["epoch"])) for run in lost if run.end)
        is_only = len(track.arm.runs) == 1
        some = "" if is_only else f"{len(lost)} of {len(track.arm.runs)} "
        text += f": {some}{status} at epoch {epochs}"
    unfinished = sum(run.status == "unfinished" for run in track.arm.runs)
    return text + (f" ({unfinished} unfinished)" if unfinished else "")


def ours(track: Track, name: str, by_step: bool) -> Curve:
    """Return the curve of a track; a run that was lost is no part of the mean."""
    arm = track.arm
    points: dict[float, list[float]] = {}
    for run in arm.finished:
        for x, y in _points(run, name, by_step):
            points.setdefault(x, []).append(y)
    shown = {x: points[x] for x in sorted(points)}
    strays = []
    for run in arm.runs:
        if not any(run is other for other in arm.finished):
            pairs = list(_points(run, name, by_step))
            lost_at = None if run.end is None else float(run.end["step" if by_step else "epoch"])
            strays.append(Stray([x for x, _ in pairs], [y for _, y in pairs], lost_at))
    return Curve(
        legend_of(track),
        track.look.colour,
        _DEFAULT_DASHES if track.is_default else track.look.dashes,
        list(shown),
        [statistics.fmean(values) for values in shown.values()],
        [min(values) for values in shown.values()],
        [max(values) for values in shown.values()],
        strays,
    )


def theirs(published: Iterable[paper.Curve]) -> list[Curve]:
    """Return the authors' curves, in the colours of ours."""
    found = []
    for curve in sorted(published, key=lambda curve: (order(curve.optimizer), curve.variant)):
        appearance = variant_look(curve.optimizer, curve.variant)
        label = f"{appearance.title}, lr {curve.lr:g}"
        numbers = (curve.x, curve.mean, curve.low, curve.high)
        found.append(Curve(label, appearance.colour, appearance.dashes, *numbers))
    return found


def draw(axes: Axes, drawn: Iterable[Curve], metric: Metric, name: str, *, x_label: str) -> None:
    """Draw the curves of one metric."""
    for curve in drawn:
        axes.plot(
            curve.x,
            curve.mean,
            color=curve.colour,
            linestyle=curve.dashes,
            marker="o" if len(curve.x) <= _MAX_MARKED else "",
            markersize=3.5,
            label=curve.label,
        )
        axes.fill_between(
            curve.x, curve.low, curve.high, color=curve.colour, alpha=0.2, linewidth=0
        )
        for stray in curve.strays:
            _draw_stray(axes, curve, stray, metric)
    axes.set_xlabel(x_label)
    axes.set_ylabel(label_of(metric, name))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
    if metric.log:
        axes.set_yscale("log")


def limit(panels: Iterable[Axes], drawn: Iterable[Curve], metric: Metric) -> None:
    """Give the panels of one metric one axis, and leave out how bad the first epochs were."""
    series = list(_finite(drawn))
    if not series:
        return
    low, high = min(map(min, series)), max(map(max, series))
    if metric.log:
        low, high = low / 1.12, min(high, low * MAX_RATIO) * 1.12
    else:
        if not metric.higher_is_better:
            high = max(max(values[len(values) // 5 :]) for values in series)
        margin = 0.05 * (high - low) or abs(high) * 0.05 or 1.0
        low, high = low - margin, high + margin
    for axes in panels:
        axes.set_ylim(low, high)


def _points(run: RunRecord, name: str, by_step: bool) -> Iterator[tuple[float, float]]:
    key, place = (name.removeprefix("train_"), "step") if by_step else (name, "epoch")
    for record in run.steps if by_step else run.epochs:
        value = record.get(key, math.nan)
        if math.isfinite(value):
            yield record[place], value


def _draw_stray(axes: Axes, curve: Curve, stray: Stray, metric: Metric) -> None:
    axes.plot(
        stray.x, stray.y, color=curve.colour, linestyle=curve.dashes, linewidth=1.0, alpha=0.7
    )
    if stray.lost_at is None:
        return
    if stray.y:
        cross(axes, stray.x[-1:], stray.y[-1:], curve.colour)
    else:  # lost before anything was measured
        cross(axes, [stray.lost_at], None, curve.colour, at_bottom=metric.higher_is_better)


def _finite(drawn: Iterable[Curve]) -> Iterator[list[float]]:
    for curve in drawn:
        for values in (curve.low, curve.high, *(stray.y for stray in curve.strays)):
            finite = [value for value in values if math.isfinite(value)]
            if finite:
                yield finite
