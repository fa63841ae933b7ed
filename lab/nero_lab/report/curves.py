"""Learning curves: mean and range over seeds, lost runs with a cross where they end.

A cross on the edge of a panel is the end of a run that is beyond it.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from nero_lab.engine.records import RunRecord
from nero_lab.engine.task import Metric
from nero_lab.report import limits, paper
from nero_lab.report.pictures import Picture, Track
from nero_lab.report.style import (
    Dashes,
    cross,
    edge_mark,
    order,
    scale_logarithmically,
    variant_look,
)

_DEFAULT_DASHES: Dashes = (0, (1, 1))
_LONG_LABEL = 36  # letters
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
        return in_two_lines(metric.label)
    return in_two_lines(metric.training_label or metric.label.replace("validation", "training"))


def in_two_lines(label: str) -> str:
    """Break an axis label that is longer than a panel is high."""
    return label.replace(" (", "\n(") if len(label) > _LONG_LABEL else label


def legend_of(track: Track) -> str:
    """Return what a legend says of a track: optimiser, rate, and runs that were lost."""
    text = f"{track.look.title}, lr {track.arm.lr:g}"
    if track.is_default:
        text += " (out of the box)"
    lost = track.arm.lost
    if lost:
        epochs = ", ".join(str(math.ceil(run.end["epoch"])) for run in lost if run.end)
        num_done = len(track.arm.seeds)
        some = "" if num_done == 1 else f"{len(lost)} of {num_done} "
        text += f": {some}diverged at epoch {epochs}"
    rest = track.arm.not_counted
    return text + (f" ({rest})" if rest else "")


def ours(track: Track, name: str, by_step: bool) -> Curve:
    """Return the curve of a track; a run that was lost is no part of the mean."""
    arm = track.arm
    points: dict[float, list[float]] = {}
    for run in arm.finished:
        for x, y in _points(run, name, by_step):
            points.setdefault(x, []).append(y)
    shown = {x: points[x] for x in sorted(points)}
    strays = []
    for run in arm.strays:
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


def theirs(published: Iterable[paper.PublishedCurve]) -> list[Curve]:
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
            marker=_marker(curve.x),
            markersize=3.5,
            label=curve.label,
        )
        axes.fill_between(
            curve.x, curve.low, curve.high, color=curve.colour, alpha=0.2, linewidth=0
        )
        for stray in curve.strays:
            axes.plot(
                stray.x,
                stray.y,
                color=curve.colour,
                linestyle=curve.dashes,
                marker=_marker(stray.x),
                markersize=3.5,
                linewidth=1.0,
                alpha=0.7,
            )
    axes.set_xlabel(x_label)
    axes.set_ylabel(label_of(metric, name))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
    if metric.log:
        scale_logarithmically(axes)


def finish(panels: Sequence[Axes], by_panel: Sequence[Sequence[Curve]], metric: Metric) -> None:
    """Give the panels of one metric one axis, then mark where runs were lost."""
    drawn = [curve for curves in by_panel for curve in curves]
    bounds = limits.of_curves(_bounding(drawn), metric)
    for axes, curves in zip(panels, by_panel, strict=True):
        if bounds:
            axes.set_ylim(*bounds)
        _mark_lost(axes, curves, metric)


def _marker(x: Sequence[float]) -> str:
    return "o" if 0 < len(x) <= _MAX_MARKED else ""


def _points(run: RunRecord, name: str, by_step: bool) -> Iterator[tuple[float, float]]:
    key, place = (name.removeprefix("train_"), "step") if by_step else (name, "epoch")
    for record in run.steps if by_step else run.epochs:
        value = record.get(key, math.nan)
        if math.isfinite(value):
            yield record[place], value


def _bounding(drawn: Sequence[Curve]) -> list[Sequence[float]]:
    """Return what must be seen: not runs that were lost, unless there are no others."""
    series = [values for curve in drawn for values in (curve.low, curve.high)]
    strays = [stray for curve in drawn for stray in curve.strays]
    series += [stray.y for stray in strays if stray.lost_at is None]
    return series if any(series) else [stray.y for stray in strays]


def _mark_lost(axes: Axes, curves: Iterable[Curve], metric: Metric) -> None:
    low, high = axes.get_ylim()
    on_edge: Counter[float] = Counter()
    for curve in curves:
        ends = [
            (stray.x[-1], stray.y[-1]) if stray.y else (stray.lost_at, math.nan)
            for stray in curve.strays
            if stray.lost_at is not None
        ]
        if curve.mean and not low <= curve.mean[-1] <= high:  # came to its end, far off
            ends.append((curve.x[-1], curve.mean[-1]))
        for x, y in ends:
            if low <= y <= high:
                cross(axes, x, y, curve.colour)
                continue
            # Without any value it was lost to bad ones.
            at_bottom = metric.higher_is_better if math.isnan(y) else y < low
            num_before = on_edge[round(x, 1)]
            edge_mark(axes, x, curve.colour, at_bottom=at_bottom, num_before=num_before)
            on_edge[round(x, 1)] += 1
