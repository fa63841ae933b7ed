"""What a score costs: steps to a target, CPU time, and bytes of state."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from nero.numbers import human_bytes
from nero_lab.report import limits
from nero_lab.report.comparisons import TRANSFER
from nero_lab.report.formatting import slug
from nero_lab.report.lab import Metric
from nero_lab.report.rates import Rate
from nero_lab.report.runs import Results
from nero_lab.report.style import drawn_in_style, in_two_lines, look, scale_logarithmically

REFERENCES = ("adamw", "adam")
"""The first of these that ran sets the target, with its final score."""

_MIN_OPTIMIZERS = 3
_WIDTH, _ROW = 11.0, 0.3  # inches


@dataclass(frozen=True)
class Costs:
    """The optimizers of one variant of a task, each at its best learning rate, and what they cost.

    Args:
        variant: of the task, or "".
        reference: the optimizer whose final score is the target, or "" if the task has its own target.
        target: the validation score up to which steps are counted.
        table: one row per optimizer: its name, mean ``score``, ``steps`` to the target (infinite if it was
            not reached), ``seconds`` for all steps (NaN if they were not timed), and ``state_bytes``.
    """

    variant: str
    reference: str
    target: float
    table: DataFrame

    @property
    def slug(self) -> str:
        """The end of the picture's file name."""
        return "-".join(filter(None, ("costs", slug(self.variant))))

    @property
    def goal(self) -> str:
        """The target in words."""
        score = f"{self.target:.4g}"
        return f"{look(self.reference).title}'s final score ({score})" if self.reference else score


def costs(results: Results) -> Iterator[Costs]:
    """Yield the costs of each variant with a target and enough optimizers to compare."""
    metric = results.task.metric
    own_target = metric.target if results.scale == "paper" else None
    if results.task.name in TRANSFER:
        return
    for variant in results.rates.variant.unique():
        ran = results.best(results.rates.optimizer.unique(), variant)
        ran = {name: rate for name, rate in ran.items() if not rate.num_diverged}
        reference = next((name for name in REFERENCES if name in ran and own_target is None), "")
        if len(ran) < _MIN_OPTIMIZERS or (own_target is None and not reference):
            continue
        curves = {name: _curve(results, rate) for name, rate in ran.items()}
        if any(curve.empty for curve in curves.values()):
            continue
        target = own_target if own_target is not None else float(curves[reference].iloc[-1])
        timed = results.step_seconds(variant)
        rows = [
            {
                "optimizer": name,
                "score": rate.mean,
                "steps": _steps_to(curves[name], target, metric),
                "num_steps": curves[name].index[-1],
                "seconds": curves[name].index[-1] * timed.get(name, math.nan),
                "state_bytes": rate.optimizer_state_bytes,
            }
            for name, rate in ran.items()
        ]
        rows.sort(key=lambda row: (row["steps"], ran[row["optimizer"]].badness))
        table = DataFrame(rows)
        yield Costs(variant, reference, target, table)


def draw(found: Costs, metric: Metric, path: Path) -> None:
    """Draw steps to the target, and the score against time, if measured, and against state size."""
    table = found.table
    columns = {"seconds": "total step time (s)", "state_bytes": "optimizer state (bytes)"}
    columns = {name: label for name, label in columns.items() if (table[name] > 0).any()}
    bounds = limits.of_points(table.score, table.score, metric)
    with drawn_in_style():
        size = (_WIDTH, max(3.3, _ROW * len(table) + 1.2))
        figure = Figure(figsize=size, layout="constrained")
        first, *others = figure.subplots(1, 1 + len(columns), squeeze=False)[0]
        _draw_steps(first, found)
        for axes, (column, label) in zip(others, columns.items(), strict=True):
            _draw_scores(axes, table, column)
            axes.set_xlabel(label)
            axes.set_ylabel(in_two_lines(f"final {metric.label}"))
            if metric.log:
                scale_logarithmically(axes)
            axes.set_ylim(*bounds)
        figure.savefig(path)


def _curve(results: Results, rate: Rate) -> Any:
    """Return the validation metric by step, averaged over the seeds that count."""
    epochs, name = results.records.epochs, results.task.metric.name
    runs = results.runs_of(rate)
    points = epochs[epochs.run.isin(runs.index[np.isfinite(runs.score)])]
    return points.groupby("step")[name].mean().dropna()


def _steps_to(curve: Any, target: float, metric: Metric) -> float:
    """Return the step at which a curve first reaches a target, interpolated between epochs.

    Example:
        >>> from pandas import Series
        >>> loss = Metric("valid_loss", "validation loss")
        >>> _steps_to(Series([4.0, 2.0, 1.0], index=[10, 20, 30]), 3.0, loss)
        15.0
    """
    sign = -1.0 if metric.higher_is_better else 1.0
    gaps = sign * (curve.to_numpy() - target)
    reached = np.flatnonzero(gaps <= 0)
    if not len(reached):
        return math.inf
    last = int(reached[0])
    if last == 0:
        return float(curve.index[0])
    before, after = gaps[last - 1], gaps[last]
    start, end = curve.index[last - 1], curve.index[last]
    if not math.isfinite(before):
        return float(end)
    return float(start + (end - start) * before / (before - after))


def _draw_steps(axes: Axes, found: Costs) -> None:
    table = found.table
    for place, row in enumerate(table.itertuples()):
        colour = look(row.optimizer).colour
        if math.isfinite(row.steps):
            axes.barh(place, row.steps, color=colour, height=0.62)
            axes.text(row.steps, place, f" {row.steps:,.0f}", va="center", fontsize=8)
        else:
            axes.text(0, place, " not reached", va="center", fontsize=8, color=colour)
    names = [look(name).title for name in table.optimizer]
    axes.set_yticks(range(len(table)), names, fontsize=9)
    for label, name in zip(axes.get_yticklabels(), table.optimizer, strict=True):
        label.set_color(look(name).colour)
    axes.set_ylim(len(table) - 0.4, -0.6)
    axes.set_xlim(0, 1.18 * table.num_steps.max())
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"steps to {found.goal}")


def _draw_scores(axes: Axes, table: DataFrame, column: str) -> None:
    for row in table.itertuples():
        axes.plot(getattr(row, column), row.score, "o", color=look(row.optimizer).colour, ms=8)
    if column == "state_bytes":
        smallest = table[column].where(table[column] > 0).min()
        axes.set_xscale("symlog", linthresh=smallest)  # plain SGD has none
        axes.set_xlim(left=-0.3 * smallest)
        axes.xaxis.set_major_formatter(lambda value, _: human_bytes(value) if value else "0")
        axes.tick_params("x", labelrotation=30)
    else:
        axes.set_xlim(0, 1.1 * table[column].max())
