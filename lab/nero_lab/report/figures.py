"""Pictures: a row for our runs, a row for the authors' where they published theirs.

Columns are the training curve, the validation curve and the final score against the learning rate, as
far as there are such. All pictures are equally wide, so that letters have one size on the page.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from pandas import DataFrame

from nero_lab.report import curves, paper, sensitivity
from nero_lab.report.comparisons import Picture
from nero_lab.report.curves import Curve
from nero_lab.report.style import drawing

RATES = "rates"  # the name of the last panel
Panels = dict[str, list[Axes]]
"""By the name of the column: one for each source."""

_WIDTH, _HEIGHT = 11.0, 3.3  # inches, of a row of panels
_WHOLE, _HALF = 120, 62  # letters that a line of a legend has room for


@dataclass(frozen=True)
class Source:
    """What one row shows."""

    title: str
    curves: dict[str, list[Curve]]  # by metric
    rates: DataFrame | None  # None if there is no such panel

    @property
    def columns(self) -> list[str]:
        """Names of the panels of a row."""
        return [*self.curves, *([] if self.rates is None else [RATES])]

    @property
    def labels(self) -> list[str]:
        """What the legend says."""
        return [curve.label for curve in next(iter(self.curves.values()))]


def draw(picture: Picture, path: Path) -> None:
    """Draw a picture into a file."""
    metric = picture.results.task.metric
    sources = [_ours(picture)]
    if picture.has_authors:
        sources.append(_theirs(picture))
    with drawing():
        beside = len(sources) > 1 and len(sources[0].columns) == 1
        figure, panels = (_beside_each_other if beside else _below_each_other)(sources)
        x_label = "step" if picture.by_step else "epoch"
        for name in sources[0].curves:
            shown = [source.curves[name] for source in sources]
            for axes, drawn in zip(panels[name], shown, strict=True):
                curves.draw(axes, drawn, metric, name, x_label=x_label)
            curves.finish(panels[name], shown, metric)
        if RATES in panels:
            sensitivity.draw(panels[RATES], [source.rates for source in sources], metric)
        _add_legends(panels[sources[0].columns[0]], beside=beside)
        figure.savefig(path)


def _ours(picture: Picture) -> Source:
    drawn = {
        name: [curves.ours(picture, track, name) for track in picture.tracks]
        for name in picture.metrics
    }
    rates = sensitivity.ours(picture) if picture.has_rates else None
    return Source(f"our runs, {picture.results.scale} scale", drawn, rates)


def _theirs(picture: Picture) -> Source:
    task = picture.results.task
    drawn = {name: curves.theirs(paper.best_curves(task.name, name)) for name in picture.metrics}
    rates = sensitivity.theirs(task) if picture.has_rates else None
    return Source("the authors' runs, from the curves that they published", drawn, rates)


def _beside_each_other(sources: Sequence[Source]) -> tuple[Figure, Panels]:
    """Return a figure of one panel a source, all of one height."""
    figure = _figure([max(_legend_height(source.labels, _HALF) for source in sources)])
    axes = list(figure.subplots(1, len(sources)))
    for part, source in zip(axes, sources, strict=True):
        part.set_title(source.title, fontsize=11, fontweight="bold")
    return figure, {sources[0].columns[0]: axes}


def _below_each_other(sources: Sequence[Source]) -> tuple[Figure, Panels]:
    """Return a figure of one row a source."""
    legends = [_legend_height(source.labels, _WHOLE) for source in sources]
    figure = _figure(legends)
    parts: list[Figure | SubFigure] = [figure]
    if len(sources) > 1:
        shape = (len(sources), 1)
        heights = [_HEIGHT + legend for legend in legends]
        parts = list(figure.subfigures(*shape, squeeze=False, height_ratios=heights).ravel())
    panels: Panels = {}
    for part, source in zip(parts, sources, strict=True):
        if len(sources) > 1:
            part.suptitle(source.title, fontsize=11, fontweight="bold")
        row = part.subplots(1, len(source.columns), squeeze=False).ravel()
        for name, axes in zip(source.columns, row, strict=True):
            panels.setdefault(name, []).append(axes)
    return figure, panels


def _figure(legends: Sequence[float]) -> Figure:
    """Return a figure with room for a row of panels above each legend of the given heights."""
    height = sum(_HEIGHT + legend for legend in legends)
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(w_pad=0.09, h_pad=0.06)
    return figure


def _add_legends(panels: Sequence[Axes], *, beside: bool) -> None:
    """Add the legend of each source, whose first panel is given."""
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        row = axes.get_figure(root=False)
        assert row is not None
        if beside:
            columns = _num_columns(labels, _HALF)
            place = (0.5, -0.17)  # below the label of the axis
            axes.legend(handles, labels, loc="upper center", bbox_to_anchor=place, ncols=columns)
        elif len(row.axes) == 1:
            row.legend(handles, labels, loc="outside right upper")
        else:
            columns = _num_columns(labels, _WHOLE)
            row.legend(handles, labels, loc="outside lower center", ncols=columns)


def _num_columns(labels: Sequence[str], width: int) -> int:
    """Return how many columns of a legend have room, by the number of letters."""
    return max(1, min(4, len(labels), width // (max(map(len, labels)) + 6)))


def _legend_height(labels: Sequence[str], width: int) -> float:
    return 0.4 + 0.2 * math.ceil(len(labels) / _num_columns(labels, width))
