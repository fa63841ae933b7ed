"""Pictures: a row for our runs, a row for the authors' where they published theirs.

Columns are the training curve, the validation curve and the final score against the learning rate, as
far as there are such. All pictures are equally wide, so that letters have one size on the page.
"""

from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from nero_lab.report import curves, paper, sensitivity
from nero_lab.report.curves import Curve
from nero_lab.report.pictures import Picture
from nero_lab.report.sensitivity import Rates
from nero_lab.report.style import drawing
from nero_lab.task import Metric

_WIDTH, _HEIGHT = 11.0, 3.3  # inches, of a row


@dataclass(frozen=True)
class Source:
    """What one row shows."""

    title: str
    curves: dict[str, list[Curve]]  # by metric
    rates: list[Rates]  # none if there is no such panel


def draw(picture: Picture, path: Path) -> None:
    """Draw a picture into a file."""
    sources = [_ours(picture)]
    if has_authors(picture):
        sources.append(_theirs(picture))
    metric = picture.results.task.metric
    num_columns = len(sources[0].curves) + bool(sources[0].rates)
    beside = num_columns == 1  # rather than below each other
    with drawing():
        rows = 1 if beside else len(sources)
        figure = Figure(figsize=(_WIDTH, (_HEIGHT + 0.6) * rows), layout="constrained")
        if beside and len(sources) == 1:
            parts = [figure]
        else:
            shape = (1, len(sources)) if beside else (len(sources), 1)
            parts = list(figure.subfigures(*shape, squeeze=False).ravel())
        engine = figure.get_layout_engine()
        assert isinstance(engine, ConstrainedLayoutEngine)
        engine.set(w_pad=0.09, h_pad=0.06)
        panels: dict[str, list[Axes]] = {}
        for part, source in zip(parts, sources, strict=True):
            if len(sources) > 1:
                part.suptitle(source.title, fontsize=11, fontweight="bold")
            for name, axes in _draw_row(part, source, metric, picture.by_step).items():
                panels.setdefault(name, []).append(axes)
        for name in sources[0].curves:
            drawn = [curve for source in sources for curve in source.curves[name]]
            curves.limit(panels[name], drawn, metric)
        if "rates" in panels:
            shown = [rates for source in sources for rates in source.rates]
            sensitivity.finish(panels["rates"], [source.rates for source in sources], shown, metric)
        figure.savefig(path)


def _ours(picture: Picture) -> Source:
    names = curves.shown_metrics(picture)
    drawn = {
        name: [curves.ours(track, name, picture.by_step) for track in picture.tracks]
        for name in names
    }
    rates = sensitivity.ours(picture) if sensitivity.has_rates(picture) else []
    return Source(f"our runs, {picture.results.scale} scale", drawn, rates)


def _theirs(picture: Picture) -> Source:
    task = picture.results.task
    names = curves.shown_metrics(picture)
    drawn = {name: curves.theirs(paper.best_curves(task, name)) for name in names}
    rates = sensitivity.theirs(task) if sensitivity.has_rates(picture) else []
    return Source("the authors' runs, from the curves that they published", drawn, rates)


def has_authors(picture: Picture) -> bool:
    """Say whether the authors published the curves of a picture."""
    if picture.name not in ("rivals", "variants"):
        return False
    names = curves.shown_metrics(picture)
    return all(paper.best_curves(picture.results.task, name) for name in names)


def _draw_row(
    part: Figure | SubFigure, source: Source, metric: Metric, by_step: bool
) -> dict[str, Axes]:
    names = [*source.curves, *(["rates"] if source.rates else [])]
    panels = dict(zip(names, part.subplots(1, len(names), squeeze=False).ravel(), strict=True))
    for name, drawn in source.curves.items():
        curves.draw(panels[name], drawn, metric, name, x_label="step" if by_step else "epoch")
    handles, labels = panels[next(iter(source.curves))].get_legend_handles_labels()
    if len(names) == 1 and isinstance(part, Figure):
        part.legend(handles, labels, loc="outside right upper")
    else:
        columns = 2 if len(names) == 1 else min(3 if max(map(len, labels)) > 30 else 4, len(labels))
        part.legend(handles, labels, loc="outside lower center", ncols=columns)
    return panels
