"""Final score against learning rate, with diverged runs on the edge."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from pandas import DataFrame

from nero_lab.report import limits, paper
from nero_lab.report.comparisons import Picture
from nero_lab.report.lab import Metric, Task
from nero_lab.report.rates import NERO_LR
from nero_lab.report.style import edge_mark, in_two_lines, look, scale_logarithmically


def ours(picture: Picture) -> DataFrame:
    """Return our runs' scores: optimizer, lr, mean, low and high over the seeds that count, is_lost.

    The numbers are NaN if every seed diverged.
    """
    rates = picture.rates.query("num_seeds > 0")
    finite = [
        [value for value in values if np.isfinite(value)] or [np.nan] for values in rates["values"]
    ]
    return rates[["optimizer", "lr"]].assign(
        mean=[np.mean(values) for values in finite],
        low=[min(values) for values in finite],
        high=[max(values) for values in finite],
        is_lost=rates.num_diverged > 0,
    )


def theirs(task: Task) -> DataFrame:
    """Return the authors' scores; runs that they stopped count as diverged."""
    curves = paper.curves(task.name, task.metric.name)
    last = curves.groupby(["optimizer", "lr"]).tail(1).sort_values("lr", kind="stable")
    last["is_lost"] = (last.x < curves.x.max()) | ~np.isfinite(last["mean"])
    last.loc[last.is_lost, ["mean", "low", "high"]] = np.nan
    return last


def draw(panels: Sequence[Axes], by_panel: Sequence[DataFrame], metrics: Sequence[Metric]) -> None:
    """Draw a picture's panels with the same limits: ours, and theirs, whose label may differ."""
    metric = metrics[0]
    shown = pd.concat(
        [rates.assign(panel=index) for index, rates in enumerate(by_panel)], ignore_index=True
    )
    # The limits show the range over seeds at the best learning rates, but only the mean at the others.
    sound = shown[np.isfinite(shown["mean"])].groupby(["panel", "optimizer"])["mean"]
    best = shown.loc[sound.idxmax() if metric.higher_is_better else sound.idxmin()]
    kept = pd.concat([best.low, best.high])
    bounds = limits.of_points(pd.concat([shown["mean"], kept]), kept, metric)
    for axes, rates, shown_metric in zip(panels, by_panel, metrics, strict=False):
        _draw(axes, rates, shown_metric, bounds)


def _draw(axes: Axes, rates: DataFrame, metric: Metric, bounds: tuple[float, float]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(min(NERO_LR, *rates.lr) / 1.7, max(NERO_LR, *rates.lr) * 1.7)
    axes.set_xlabel("learning rate")
    if metric.log:
        scale_logarithmically(axes)
    axes.set_ylim(*bounds)
    axes.set_ylabel(in_two_lines(f"final {metric.label}"))
    axes.axvline(NERO_LR, color="#a0a0a0", linewidth=1.2, zorder=0)
    marks: Counter[str] = Counter()
    for optimizer, line in rates.groupby("optimizer", sort=False):
        is_inside = line["mean"].between(*bounds)
        inside = line[is_inside]
        axes.errorbar(
            inside.lr,
            inside["mean"],
            yerr=np.stack([inside["mean"] - inside.low, inside.high - inside["mean"]]),
            color=look(optimizer).colour,
            linestyle=look(optimizer).dashes,
            marker="o",
            markersize=4.5,
            capsize=2.5,
            elinewidth=1.1,
        )
        for rate in line[line.is_lost | ~is_inside].itertuples():
            colour, at_bottom = look(optimizer).colour, metric.higher_is_better
            edge_mark(axes, rate.lr, colour, marks, at_bottom=at_bottom, is_lost=rate.is_lost)
