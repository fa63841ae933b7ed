"""A map of learning rates: each optimizer's gap to the best score, by task and learning rate."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray
from pandas import DataFrame

from nero_lab.report.comparisons import TRANSFER
from nero_lab.report.runs import Results
from nero_lab.report.style import drawn_in_style, look, order

WORST = 50.0
"""The gap in percent at which the colour scale ends."""

_MIN_TASKS = 3
_COLUMNS = 2


def gaps(results: Mapping[str, Results]) -> DataFrame:
    """Return each optimizer's gap to the task's best score, in %, by task and learning rate.

    Variants, tasks that compare sizes, and optimizers with fewer than three tasks are left out. The gap
    is infinite at learning rates at which a run diverged.
    """
    frames = [
        rates.assign(task=name, gap=100 * (rates.badness - best) / abs(best))
        for name, found in results.items()
        if found.scale != "smoke" and name not in TRANSFER
        for rates in [found.rates[(found.rates.variant == "") & (found.rates.num_seeds > 0)]]
        if np.isfinite(best := rates.badness.min()) and best
    ]
    if not frames:
        return DataFrame(columns=["task", "optimizer", "lr", "gap"])
    shown = pd.concat(frames)[["task", "optimizer", "lr", "gap"]]
    return shown[shown.groupby("optimizer").task.transform("nunique") >= _MIN_TASKS]


def draw(shown: DataFrame, path: Path) -> None:
    """Draw what ``gaps`` returned, one panel per optimizer."""
    tasks, rates = list(shown.task.unique()), sorted(shown.lr.unique())
    found = shown.groupby("optimizer")
    tables = {name: own.pivot(index="task", columns="lr", values="gap") for name, own in found}
    tables = {name: table.reindex(index=tasks, columns=rates) for name, table in tables.items()}
    draw_panels(tables, path, label="gap to the task's best score (%)")


def draw_panels(
    tables: Mapping[str, DataFrame],
    path: Path,
    *,
    label: str,
    worst: float = WORST,
    finish: Callable[[Axes, str], None] | None = None,
) -> None:
    """Draw one panel per optimizer, from tables of gaps by row and learning rate.

    All tables have the same rows. ``finish`` adds to a panel.
    """
    optimizers = sorted(tables, key=order)
    num_rows = -(-len(optimizers) // _COLUMNS)
    with drawn_in_style():
        size = (11.0, num_rows * (0.32 * len(tables[optimizers[0]]) + 0.9) + 0.6)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(num_rows, _COLUMNS, squeeze=False, sharey=True)
        for axes, name in zip(panels.flat, optimizers, strict=False):
            table = tables[name]
            image = _draw_panel(axes, table.to_numpy(), name, worst)
            labels = [f"{lr:g}" for lr in table.columns]
            axes.set_xticks(range(len(labels)), labels, rotation=60, fontsize=8)
            axes.set_yticks(range(len(table)), table.index, fontsize=9)
            if finish:
                finish(axes, name)
        for axes in panels.flat[len(optimizers) :]:
            axes.set_visible(False)
        bar = figure.colorbar(image, ax=panels, shrink=0.8, extend="max")
        bar.set_label(label)
        figure.savefig(path)


def _draw_panel(axes: Axes, table: NDArray[np.float64], optimizer: str, worst: float) -> AxesImage:
    """Draw gaps as colours, with a cross where a run diverged and a star at the best."""
    image = axes.imshow(np.where(np.isinf(table), np.nan, table), vmin=0, vmax=worst, cmap="YlOrBr")
    axes.set_aspect("auto")
    axes.grid(visible=False)
    axes.set_title(look(optimizer).title, color=look(optimizer).colour, fontsize=11)
    for (row, column), gap in np.ndenumerate(table):
        if np.isinf(gap):
            axes.plot(column, row, "x", color="#a63c00", markersize=7)
        elif gap == 0:
            axes.plot(column, row, "*", color="#00694d", markersize=9)
    return image
