"""Final score against learning rate, with the rates that diverged on the edge."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from nero_lab.engine.task import Metric, Task
from nero_lab.report import limits, paper
from nero_lab.report.curves import in_two_lines
from nero_lab.report.pictures import Picture
from nero_lab.report.results import NERO_LR, Arm
from nero_lab.report.style import Look, edge_mark, look, scale_logarithmically


@dataclass(frozen=True)
class Point:
    """The score at one rate; NaN if every seed was lost."""

    lr: float
    mean: float
    low: float
    high: float
    is_lost: bool  # some seed, at least


@dataclass(frozen=True)
class Rates:
    """One optimiser over its rates."""

    look: Look
    points: Sequence[Point]


def has_rates(picture: Picture) -> bool:
    """Say whether any optimiser of a picture was run at several rates."""
    return not picture.by_step and any(line.is_tuned for line in picture.lines)


def ours(picture: Picture) -> list[Rates]:
    """Return the scores of our runs."""
    return [
        Rates(look(line.optimizer), [_point(arm) for arm in line.arms.values() if arm.score])
        for line in picture.lines
    ]


def theirs(task: Task) -> list[Rates]:
    """Return the scores of the authors' runs; those that they stopped count as lost."""
    curves = paper.curves(task, task.metric.name)
    found: dict[str, list[Point]] = {}
    for curve in sorted(curves, key=lambda curve: curve.lr):
        values = (curve.mean[-1], curve.low[-1], curve.high[-1])
        is_lost = not paper.reached_the_end(curve, curves)
        point = Point(curve.lr, *((math.nan,) * 3 if is_lost else values), is_lost)
        found.setdefault(curve.optimizer, []).append(point)
    return [Rates(look(optimizer), points) for optimizer, points in found.items()]


def finish(panels: Sequence[Axes], by_panel: Sequence[Sequence[Rates]], metric: Metric) -> None:
    """Draw the panels of a picture, all on one axis."""
    bounds = _bounds([rates for lines in by_panel for rates in lines], metric)
    for axes, lines in zip(panels, by_panel, strict=True):
        _draw(axes, lines, metric, bounds)


def _point(arm: Arm) -> Point:
    score = arm.score
    assert score is not None
    if not score.values:
        return Point(arm.lr, math.nan, math.nan, math.nan, True)
    mean = sum(score.values) / len(score.values)
    return Point(arm.lr, mean, min(score.values), max(score.values), score.num_lost > 0)


def _bounds(shown: Sequence[Rates], metric: Metric) -> tuple[float, float]:
    choose = max if metric.higher_is_better else min
    # The whole range over seeds at each best rate, and elsewhere the mean: error bars may be cut off.
    kept: list[float] = []
    for rates in shown:
        sound = [point for point in rates.points if math.isfinite(point.mean)]
        if sound:
            best = choose(sound, key=lambda point: point.mean)
            kept += [best.low, best.high]
    means = [point.mean for rates in shown for point in rates.points]
    return limits.of_points([*means, *kept], kept, metric) or (0.0, 1.0)


def _draw(axes: Axes, lines: Sequence[Rates], metric: Metric, bounds: tuple[float, float]) -> None:
    tried = [NERO_LR, *(point.lr for rates in lines for point in rates.points)]
    axes.set_xscale("log")
    axes.set_xlim(min(tried) / 1.7, max(tried) * 1.7)
    axes.set_xlabel("learning rate")
    if metric.log:
        scale_logarithmically(axes)
    axes.set_ylim(*bounds)
    axes.set_ylabel(in_two_lines(f"final {metric.label}"))
    axes.axvline(NERO_LR, color="#a0a0a0", linewidth=1.2, zorder=0)
    marks: Counter[float] = Counter()
    for rates in lines:
        inside = [p for p in rates.points if bounds[0] <= p.mean <= bounds[1]]
        axes.errorbar(
            [p.lr for p in inside],
            [p.mean for p in inside],
            yerr=[[p.mean - p.low for p in inside], [p.high - p.mean for p in inside]],
            color=rates.look.colour,
            linestyle=rates.look.dashes,
            marker="o",
            markersize=4.5,
            capsize=2.5,
            elinewidth=1.1,
        )
        for point in rates.points:
            if point.is_lost or point not in inside:
                edge_mark(
                    axes,
                    point.lr,
                    rates.look.colour,
                    is_lost=point.is_lost,
                    at_bottom=metric.higher_is_better,
                    num_before=marks[point.lr],
                )
                marks[point.lr] += 1
