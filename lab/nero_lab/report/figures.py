"""Pictures: one row for our runs, and one for the authors' if they published theirs.

The columns are the training curve, the validation curve and the final score against the learning rate,
if available. All pictures have the same width, so that text has the same size on the page.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from nero_lab.report import curves, paper, sensitivity
from nero_lab.report.comparisons import Picture
from nero_lab.report.style import drawn_in_style

_WIDTH, _HEIGHT = 11.0, 3.3  # a row of panels, in inches
_LEGEND_WIDTH = 120  # characters that fit in a line of a legend


def draw(picture: Picture, path: Path) -> None:
    """Draw a picture into a file."""
    task = picture.results.task
    titles = [f"our runs, {picture.results.scale} scale"]
    columns = {
        name: [[curves.ours(picture, track, name) for track in picture.tracks]]
        for name in picture.metrics
    }
    rates = [sensitivity.ours(picture)] if picture.has_rates else []
    if picture.has_authors:
        titles.append("the authors' runs, from their published curves")
        for name, column in columns.items():
            column.append(curves.theirs(paper.best_curves(task.name, name)))
        rates += [sensitivity.theirs(task)] if rates else []
    labels = [[curve.label for curve in row] for row in columns[picture.metrics[0]]]
    with drawn_in_style():
        figure, panels = _panels(titles, labels, len(columns) + bool(rates))
        x_label = "step" if picture.by_step else "epoch"
        for stacked, (name, drawn) in zip(panels, columns.items(), strict=False):
            curves.draw(stacked, drawn, task.metric, name, x_label=x_label)
        if rates:
            sensitivity.draw(panels[-1], rates, [picture.results.metric, task.metric])
        for first in panels[0]:
            row, (handles, texts) = first.get_figure(root=False), first.get_legend_handles_labels()
            assert row is not None
            row.legend(handles, texts, loc="outside lower center", ncols=_num_columns(texts))
        figure.savefig(path)


def _panels(
    titles: Sequence[str], labels: Sequence[Sequence[str]], num_columns: int
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure with one row per title and room for the legends, and its panels by column."""
    heights = [_HEIGHT + 0.4 + 0.2 * math.ceil(len(row) / _num_columns(row)) for row in labels]
    figure = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.09, h_pad=0.06)  # type: ignore[union-attr, call-arg]
    parts: list[Figure | SubFigure] = [figure]
    if len(titles) > 1:
        shape = (len(titles), 1)
        parts = list(figure.subfigures(*shape, squeeze=False, height_ratios=heights).ravel())
        for part, title in zip(parts, titles, strict=True):
            part.suptitle(title, fontsize=11, fontweight="bold")
    rows = [part.subplots(1, num_columns, squeeze=False)[0] for part in parts]
    return figure, [list(column) for column in zip(*rows, strict=True)]


def _num_columns(labels: Sequence[str]) -> int:
    """Return how many columns fit in a legend, given the length of its texts."""
    return max(1, min(4, len(labels), _LEGEND_WIDTH // (max(map(len, labels)) + 6)))
