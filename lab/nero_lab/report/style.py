"""Each optimizer's look: one colour, line style and name throughout the report.

Colours come from the colour-blind-safe Okabe-Ito palette. Variants of an optimizer have darker or lighter
neighbours of its colour, and differ in their dashes too.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Any
from zlib import crc32

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.ticker import LogFormatter

Dashes = str | tuple[int, tuple[float, ...]]


@dataclass(frozen=True)
class Look:
    """The look of one optimizer."""

    title: str
    colour: str
    dashes: Dashes = "-"


_SHORT: Dashes = (0, (2, 1.2))
_LONG: Dashes = (0, (6, 1.5))
_MIXED: Dashes = (0, (5, 1.5, 1, 1.5))

LOOKS: dict[str, Look] = {
    "nero": Look("Nero", "#d55e00"),
    "nero-none": Look("Nero, no constraint", "#8c8c8c", _SHORT),
    "nero-mean": Look("Nero, mean only", "#e6a100", _MIXED),
    "nero-norm": Look("Nero, norm only", "#6b3410", _LONG),
    "nero-initial": Look("Nero, initial norms", "#c46a1b", _MIXED),
    "nero-rows": Look("Nero, preset rows", "#ff8c42", _LONG),
    "nero-polar": Look("Nero, preset polar", "#b3001b"),
    "nero-rows-rms": Look("Nero, rows, paper's norm", "#c2571a", _SHORT),
    "nero-polar-rms": Look("Nero, polar, paper's norm", "#7a0012", _SHORT),
    "nero-rows-initial": Look("Nero, rows, initial norms", "#e0a070", _MIXED),
    "nero-polar-initial": Look("Nero, polar, initial norms", "#d4697a", _MIXED),
    "nero-regularized": Look("Nero, regularized", "#a03a00", _SHORT),
    "sgd": Look("SGD", "#0072b2"),
    "adam": Look("Adam", "#009e73"),
    "adam-momentum": Look("Adam with momentum", "#004d38", _LONG),
    "lamb": Look("LAMB", "#cc79a7"),
    "lamb-clamped": Look("LAMB, norms clamped at 10", "#a8527f", _MIXED),
    "lamb-momentum": Look("LAMB with momentum", "#e39ac4", _SHORT),
    "lamb-balanced": Look("LAMB, constrained", "#8a2f62", _LONG),
    "madam": Look("Madam", "#56b4e9"),
    "madam-balanced": Look("Madam, constrained", "#1f6f9f", _LONG),
    "adamw": Look("AdamW", "#000000"),
    "sgd-momentum": Look("SGD with momentum", "#4b86b4", _MIXED),
    "muon": Look("Muon", "#7b3fb5"),
    "normuon": Look("NorMuon", "#b18bd6", _LONG),
    "soap": Look("SOAP", "#6a8f1f", _MIXED),
    "schedule-free": Look("Schedule-Free AdamW", "#17a2a2", _LONG),
    "prodigy": Look("Prodigy", "#b8860b", _SHORT),
}

_LONG_LABEL = 36  # characters
_SPARE = ("#0b6e4f", "#5c4b99", "#a0522d", "#2f4f8f", "#7a1f3d")
# Variants compared in one figure: one look each, whatever the optimizer.
_VARIANTS = {
    "sigma-1": Look("sigma = 1", "#0072b2"),
    "sigma-100": Look("sigma = 100", "#7b3fb5", _LONG),
}


@contextmanager
def drawn_in_style() -> Iterator[None]:
    """Draw in the report's style."""
    style = files("nero_lab.report") / "templates" / "report.mplstyle"
    with as_file(style) as file, matplotlib.style.context(file):
        yield


def look(optimizer: str) -> Look:
    """Return an optimizer's look; a custom optimizer gets a spare colour, chosen by its name."""
    spare = _SPARE[crc32(optimizer.encode()) % len(_SPARE)]
    return LOOKS.get(optimizer, Look(optimizer, spare, _SHORT))


def variant_look(optimizer: str, variant: str) -> Look:
    """Return a variant's look in a figure that compares several."""
    plain = look(optimizer)
    if not variant:
        return plain
    own = _VARIANTS.get(variant, Look(variant, plain.colour, plain.dashes))
    return Look(f"{plain.title}, {own.title}", own.colour, own.dashes)


def order(optimizer: str) -> int:
    """Return an optimizer's position in tables and legends."""
    names = list(LOOKS)
    return names.index(optimizer) if optimizer in names else len(names)


def in_two_lines(label: str) -> str:
    """Break an axis label that is longer than the panel's height."""
    return label.replace(" (", "\n(") if len(label) > _LONG_LABEL else label


def scale_logarithmically(axes: Axes) -> None:
    """Give a panel a logarithmic y axis with labels such as 400, not 4 times ten squared."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))


def cross(axes: Axes, x: float, y: float, colour: str) -> None:
    """Draw a cross for a run that diverged or failed."""
    # Without clipping, so that a cross in a corner is complete.
    axes.plot(x, y, "x", color=colour, ms=9, mew=2.2, clip_on=False, zorder=5)


def edge_mark(
    axes: Axes, x: float, colour: str, marks: Counter[str], *, at_bottom: bool, is_lost: bool = True
) -> None:
    """Draw a mark just inside the edge of a panel where bad scores are.

    It is a cross for a run that diverged or failed, and a triangle for one that is off the scale. ``marks``
    counts the panel's marks by position, so that each is drawn further inside than the previous one.
    """
    inwards = 0.04 + 0.06 * marks[f"{x:.2g}"]  # as a fraction of the panel's height
    marks[f"{x:.2g}"] += 1
    y, outwards = (inwards, "v") if at_bottom else (1.0 - inwards, "^")
    size = {"ms": 9, "mew": 2.2} if is_lost else {"ms": 7, "mew": 0}
    style: dict[str, Any] = {"color": colour, "clip_on": False, "zorder": 5, **size}
    axes.plot(x, y, "x" if is_lost else outwards, transform=axes.get_xaxis_transform(), **style)
