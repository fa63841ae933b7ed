"""The picture at the top of the claims: each claim, its comparisons and their intervals."""

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nero_lab.report.differences import Difference, difference
from nero_lab.report.formatting import capitalised
from nero_lab.report.rates import Rate
from nero_lab.report.style import drawn_in_style, look
from nero_lab.report.verdicts import MARKS, Claim, Verdict

COLOURS = {
    "held": "#00694d",
    "likely": "#00694d",
    "did not hold": "#a63c00",
    "doubtful": "#a63c00",
}
"""Outcomes' colours; all others are grey."""

_GREY = "#6a6a6a"
_LIMIT = 60.0  # percent; values beyond it are drawn at the edge
_WIDTH, _ROW = 4.4, 0.54  # inches: narrow enough for a phone
_CLAIM_WIDTH = 58  # characters


def draw(verdicts: Mapping[Claim, Verdict], path: Path) -> None:
    """Draw one row per claim: its outcome, and the advantage over each rival with its interval."""
    with drawn_in_style():
        figure = Figure(figsize=(_WIDTH, _ROW * len(verdicts) + 1.6), layout="constrained")
        axes = figure.subplots()
        for row, (claim, verdict) in enumerate(verdicts.items()):
            _draw_row(axes, row, claim, verdict)
        axes.set_ylim(len(verdicts) - 0.4, -0.6)
        axes.set_xlim(-1.12 * _LIMIT, 1.12 * _LIMIT)
        axes.set_yticks([])
        axes.axvline(0, color="#b0b0b0", linewidth=1, zorder=0)
        axes.set_xlabel("advantage of the claim's favourite,\nin % of the rival's score")
        axes.spines[["left", "right", "top"]].set_visible(False)
        _explain(figure, verdicts)
        figure.savefig(path)


def relative(favourite: Rate, rival: Rate) -> Difference:
    """Return the advantage over a rival and its 95% interval, in percent of the rival's mean score."""
    found, scale = difference(favourite, rival), 100 / abs(rival.mean)
    return Difference(found.mean * scale, found.low * scale, found.high * scale, found.num_seeds)


def _draw_row(axes: Axes, row: int, claim: Claim, verdict: Verdict) -> None:
    colour = COLOURS.get(verdict.outcome, _GREY)
    is_sure = verdict.outcome == verdict.finding
    beside = axes.get_yaxis_transform()
    text = f"{MARKS[verdict.outcome]} {verdict.outcome}: {capitalised(claim.title)}"
    text = textwrap.fill(text, _CLAIM_WIDTH, max_lines=2)
    weight = "bold" if is_sure and colour != _GREY else "normal"
    style: dict[str, Any] = {
        "color": colour,
        "weight": weight,
        "fontsize": 8.5,
        "linespacing": 1.05,
    }
    axes.text(0.0, row - 0.44, text, transform=beside, ha="left", va="top", **style)
    axes.axhline(row + 0.5, color="#e2e2e2", linewidth=0.8, zorder=0)
    drawn = [
        (favourite, rival) for favourite, rival in verdict.pairs if _is_finite(favourite, rival)
    ]
    for place, (favourite, rival) in enumerate(drawn):
        y = row + 0.28 + 0.36 * ((place + 0.5) / len(drawn) - 0.5)
        draw_interval(axes, y, relative(favourite, rival), look(rival.optimizer).colour)


def draw_interval(axes: Axes, y: float, found: Difference, colour: str) -> None:
    """Draw an advantage as a dot on its interval; with one seed, as a hollow dot without interval."""
    mean = min(max(found.mean, -_LIMIT), _LIMIT)
    marker = "o" if mean == found.mean else "<" if found.mean < 0 else ">"
    if found.num_seeds > 1:
        ends = [min(max(end, -_LIMIT), _LIMIT) for end in (found.low, found.high)]
        axes.plot(ends, [y, y], color=colour, linewidth=1.6, solid_capstyle="butt")
    filling = colour if found.num_seeds > 1 else "white"
    axes.plot(mean, y, marker, color=colour, markerfacecolor=filling, markersize=6, clip_on=False)


def _is_finite(*rates: Rate) -> bool:
    return all(math.isfinite(rate.mean) and rate.mean for rate in rates)


def _explain(figure: Figure, verdicts: Mapping[Claim, Verdict]) -> None:
    rivals = {r.optimizer: None for v in verdicts.values() for _, r in v.pairs if _is_finite(r)}
    handles = [
        Line2D([], [], marker="o", linestyle="", color=look(name).colour, label=look(name).title)
        for name in rivals
    ]
    one = {"marker": "o", "linestyle": "", "color": _GREY, "markerfacecolor": "white"}
    handles.append(Line2D([], [], **one, label="one seed, no interval"))  # type: ignore[arg-type]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, title="rival")
