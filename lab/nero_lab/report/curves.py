"""Learning curves: mean and range over seeds, with a cross where a run diverged or failed.

A cross on the edge of a panel is the end of a run that is beyond it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from pandas import DataFrame, Series

from nero_lab.report import limits
from nero_lab.report.comparisons import Picture
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
from nero_lab.task import Metric

_DEFAULT_DASHES: Dashes = (0, (1, 1))
_MAX_MARKED = 6  # epochs; more need no dots


@dataclass(frozen=True)
class Stray:
    """A run that did not come to its end; ``lost_at`` is NaN if it may still go on."""

    values: Series  # by epoch or step
    lost_at: float


@dataclass(frozen=True)
class Curve:
    """One optimiser in one panel: mean, low and high by epoch or step."""

    label: str
    look: Look
    band: DataFrame
    strays: Sequence[Stray] = ()


def ours(picture: Picture, track: Any, name: str) -> Curve:
    """Return the curve of a track; runs that diverged or failed are not part of the mean."""
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
        Stray(points[points.run == run].set_index(place)[key], lost_at)
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


def draw(axes: Axes, curves: Iterable[Curve], metric: Metric, name: str, *, x_label: str) -> None:
    """Draw the curves of one metric."""
    for curve in curves:
        style: dict[str, Any] = {"color": curve.look.colour, "linestyle": curve.look.dashes}
        band = curve.band
        axes.plot(band["mean"], **style, **_dots(band), label=curve.label)
        shade: dict[str, Any] = {"color": curve.look.colour, "alpha": 0.2, "linewidth": 0}
        axes.fill_between(band.index, band.low, band.high, **shade)
        for stray in curve.strays:
            axes.plot(stray.values, **style, **_dots(stray.values), linewidth=1.0, alpha=0.7)
    label = metric.label
    if name != metric.name:
        label = metric.training_label or label.replace("validation", "training")
    axes.set_xlabel(x_label)
    axes.set_ylabel(in_two_lines(label))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
    if metric.log:
        scale_logarithmically(axes)


def finish(panels: Sequence[Axes], by_panel: Sequence[Sequence[Curve]], metric: Metric) -> None:
    """Give the panels of one metric one axis, then mark where runs were lost."""
    drawn = [curve for curves in by_panel for curve in curves]
    # What must be seen: not runs that were lost, unless there are no others.
    strays = [stray for curve in drawn for stray in curve.strays]
    series = [curve.band[end] for curve in drawn for end in ("low", "high")]
    series += [stray.values for stray in strays if math.isnan(stray.lost_at)]
    if not any(map(len, series)):
        series = [stray.values for stray in strays]
    bounds = limits.of_curves(series, metric)
    for axes, curves in zip(panels, by_panel, strict=True):
        if bounds:
            axes.set_ylim(*bounds)
        _mark_lost(axes, curves, metric)


def _dots(points: DataFrame | Series) -> dict[str, Any]:
    return {"marker": "o" if 0 < len(points) <= _MAX_MARKED else "", "markersize": 3.5}


def _mark_lost(axes: Axes, curves: Iterable[Curve], metric: Metric) -> None:
    low, high = axes.get_ylim()
    on_edge: Counter[float] = Counter()
    for curve in curves:
        ends = [
            (stray.values.index[-1], stray.values.iloc[-1])
            if len(stray.values)
            else (stray.lost_at, math.nan)
            for stray in curve.strays
            if not math.isnan(stray.lost_at)
        ]
        means = curve.band["mean"]
        if len(means) and not low <= means.iloc[-1] <= high:  # came to its end, far off
            ends.append((means.index[-1], means.iloc[-1]))
        for x, y in ends:
            if low <= y <= high:
                cross(axes, x, y, curve.look.colour)
                continue
            # Without any value it was lost to bad ones.
            at_bottom = metric.higher_is_better if math.isnan(y) else y < low
            num_before = on_edge[round(x, 1)]
            edge_mark(axes, x, curve.look.colour, at_bottom=at_bottom, num_before=num_before)
            on_edge[round(x, 1)] += 1
