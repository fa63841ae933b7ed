"""Learning curves: mean and range over seeds, with a cross where a run diverged or failed.

A cross on a panel's edge marks a run that ended beyond it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator
from pandas import DataFrame, Series

from nero_lab.report import limits
from nero_lab.report.comparisons import Picture
from nero_lab.report.lab import Metric
from nero_lab.report.style import (
    Dashes,
    Look,
    cross,
    edge_mark,
    in_two_lines,
    order,
    scale_logarithmically,
    variant_look,
)

_DEFAULT_DASHES: Dashes = (0, (1, 1))
_MUCH_LONGER = 3.0  # times
_MAX_MARKED = 6  # epochs; more need no dots


@dataclass(frozen=True)
class Curve:
    """One optimizer in one panel.

    Args:
        label: the legend's text.
        look: colour and dashes.
        band: mean, low and high by epoch or step.
        strays: for each unfinished run, its values by epoch or step, and where it failed (NaN if it may
            still be running).
    """

    label: str
    look: Look
    band: DataFrame
    strays: Sequence[tuple[Series, float]] = ()


def ours(picture: Picture, track: Any, name: str) -> Curve:
    """Return a track's curve; the mean excludes runs that diverged or failed."""
    runs = picture.results.runs_of(track)
    records, place, key = picture.results.records.epochs, "epoch", name
    if picture.by_step:
        records, place, key = picture.results.records.steps, "step", name.removeprefix("train_")
    points = DataFrame({"run": [], place: [], key: []})
    if key in records:
        points = records[records.run.isin(runs.index) & np.isfinite(records[key])]
    is_finished = np.isfinite(runs.score)
    finished = points[points.run.isin(runs.index[is_finished])]
    band = finished.groupby(place)[key].agg(["mean", "min", "max"])
    strays = [
        (points[points.run == run].set_index(place)[key], lost_at)
        for run, lost_at in runs[f"end_{place}"][~is_finished].items()
    ]
    look = picture.look_of(track)
    if not track.is_best:
        look = Look(look.title, look.colour, _DEFAULT_DASHES)
    band = band.rename(columns={"min": "low", "max": "high"})
    return Curve(picture.legend_of(track), look, band, strays)


def theirs(published: DataFrame) -> list[Curve]:
    """Return the authors' curves, in the colours of ours."""
    found = published.groupby(["optimizer", "variant", "lr"])
    ordered = sorted(found, key=lambda item: (order(item[0][0]), item[0][1]))
    looks = [variant_look(optimizer, variant) for (optimizer, variant, _), _ in ordered]
    return [
        Curve(f"{look.title}, lr {lr:g}", look, curve.set_index("x")[["mean", "low", "high"]])
        for look, ((_, _, lr), curve) in zip(looks, ordered, strict=True)
    ]


def draw(
    panels: Sequence[Axes],
    by_panel: Sequence[Sequence[Curve]],
    metric: Metric,
    name: str,
    *,
    x_label: str,
) -> None:
    """Draw one metric's curves in panels with the same axes, and mark where runs diverged or failed."""
    drawn = [curve for curves in by_panel for curve in curves]
    # The limits ignore runs that diverged or failed, unless there are no others.
    strays = [stray for curve in drawn for stray in curve.strays]
    series = [curve.band[end] for curve in drawn for end in ("low", "high")]
    series += [values for values, lost_at in strays if math.isnan(lost_at)]
    if not any(map(len, series)):
        series = [values for values, _ in strays]
    bounds = limits.of_curves(series, metric)
    label = metric.label
    if name != metric.name:
        label = metric.training_label or label.replace("validation", "training")
    lengths = [max(map(_length, curves), default=0.0) for curves in by_panel]
    for axes, curves in zip(panels, by_panel, strict=True):
        for curve in curves:
            _draw_curve(axes, curve)
        axes.set_xlabel(x_label)
        axes.set_ylabel(in_two_lines(label))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
        if len(panels) > 1:
            _share_x(axes, lengths)
        if metric.log:
            scale_logarithmically(axes)
        if bounds:
            axes.set_ylim(*bounds)
        _mark_lost(axes, curves, metric)


def _draw_curve(axes: Axes, curve: Curve) -> None:
    band, colour = curve.band, curve.look.colour
    style: dict[str, Any] = {"color": colour, "linestyle": curve.look.dashes, "markersize": 3.5}
    axes.plot(band["mean"], **style, marker=_dot(band), label=curve.label)
    axes.fill_between(band.index, band.low, band.high, color=colour, alpha=0.2, linewidth=0)
    for values, _ in curve.strays:
        axes.plot(values, **style, marker=_dot(values), linewidth=1.0, alpha=0.7)


def _share_x(axes: Axes, lengths: Sequence[float]) -> None:
    """End all panels where the longest does; if one is much longer, use a logarithmic axis."""
    longest, shortest = max(lengths), min(filter(None, lengths), default=0.0)
    if longest > _MUCH_LONGER * shortest > 0:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.set_xlim(1, 1.1 * longest)
    elif longest:
        axes.set_xlim(0, 1.03 * longest)


def _length(curve: Curve) -> float:
    """Return the last epoch or step of a curve, including runs that did not finish."""
    ends = [*curve.band.index[-1:]]
    for values, lost_at in curve.strays:
        ends += [*values.index[-1:], *([lost_at] if math.isfinite(lost_at) else [])]
    return float(max(ends, default=0.0))


def _dot(points: DataFrame | Series) -> str:
    return "o" if 0 < len(points) <= _MAX_MARKED else ""


def _mark_lost(axes: Axes, curves: Iterable[Curve], metric: Metric) -> None:
    low, high = axes.get_ylim()
    marks: Counter[str] = Counter()
    for curve in curves:
        ends = [
            (values.index[-1], values.iloc[-1]) if len(values) else (lost_at, math.nan)
            for values, lost_at in curve.strays
            if not math.isnan(lost_at)
        ]
        means = curve.band["mean"]
        if len(means) and not low <= means.iloc[-1] <= high:  # finished, but off the scale
            ends.append((means.index[-1], means.iloc[-1]))
        for x, y in ends:
            if low <= y <= high:
                cross(axes, x, y, curve.look.colour)
            else:  # a run without any value goes to the edge where bad scores are
                at_bottom = metric.higher_is_better if math.isnan(y) else y < low
                edge_mark(axes, x, curve.look.colour, marks, at_bottom=at_bottom)
