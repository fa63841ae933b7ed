"""The overview's picture: presets against today's optimizers in the protocol's runs, by task."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nero_lab.report.overview import draw_interval, relative
from nero_lab.report.protocol import Scored
from nero_lab.report.rates import Rate
from nero_lab.report.style import drawn_in_style, look

_WIDTH, _ROW = 5.0, 0.26  # inches: narrow enough for a phone

Row = tuple[str, Rate, Sequence[Rate]]
"""A task, a preset, and its rivals."""


def rows(scored: Mapping[str, Sequence[Scored]]) -> list[Row]:
    """Return one row per preset and task, if it has rivals there."""
    found: list[Row] = []
    for task, comparisons in scored.items():
        own = [one for one in comparisons if one.name == "today"]
        for favourite in dict.fromkeys(f.optimizer for one in own for f, _ in one.pairs):
            pairs = [pair for one in own for pair in one.pairs if pair[0].optimizer == favourite]
            rivals = [rival for _, rival in pairs if not rival.num_diverged]
            if rivals and not pairs[0][0].num_diverged:
                found.append((task, pairs[0][0], rivals))
    return found


def draw(found: Sequence[Row], path: Path) -> None:
    """Draw the presets' advantage over each rival, in percent of the rival's score."""
    with drawn_in_style():
        figure = Figure(figsize=(_WIDTH, _ROW * len(found) + 1.3), layout="constrained")
        axes = figure.subplots()
        names: dict[str, None] = {}
        for row, (_, favourite, rivals) in enumerate(found):
            for place, rival in enumerate(rivals):
                y = row + 0.5 * ((place + 0.5) / len(rivals) - 0.5)
                draw_interval(axes, y, relative(favourite, rival), look(rival.optimizer).colour)
                names[rival.optimizer] = None
        labels = [
            f"{task}, {favourite.optimizer.removeprefix('nero-')}" for task, favourite, _ in found
        ]
        axes.set_yticks(range(len(found)), labels)
        axes.set_ylim(len(found) - 0.4, -0.6)
        axes.axvline(0, color="black", linewidth=1, zorder=0)
        axes.set_xlabel("the preset's advantage,\nin % of the rival's score")
        handles = [
            Line2D(
                [], [], marker="o", linestyle="", color=look(name).colour, label=look(name).title
            )
            for name in names
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2, title="rival")
        figure.savefig(path)
