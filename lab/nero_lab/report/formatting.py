"""How the report writes numbers."""

import math
import re
from collections.abc import Iterable
from html import escape

from nero.numbers import human_bytes
from nero_lab.report.differences import Difference
from nero_lab.report.rates import Rate

MINUS = "\N{MINUS SIGN}"
NOTHING = "\N{EN DASH}"
"""A cell without a number."""


def number(value: float) -> str:
    """Write a number with four significant digits.

    Example:
        >>> number(172.994), number(20053000000.0), number(-2.0) == MINUS + "2.000"
        ('173.0', '2.005e+10', True)
    """
    if math.isnan(value):
        return NOTHING
    is_short = value == 0 or 1e-3 <= abs(value) < 1e5
    text = f"{abs(value):#.4g}".rstrip(".") if is_short else f"{abs(value):.4g}"
    return f"{MINUS}{text}" if value < 0 else text


def plain(text: str) -> str:
    r"""Escape text for Markdown.

    Example:
        >>> plain("<class>/*.JPEG")
        '&lt;class&gt;/\\*.JPEG'
    """
    return re.sub(r"([*_`\\[\]])", r"\\\1", escape(text, quote=False))


def slug(text: str) -> str:
    """Convert text to part of a file name.

    Example:
        >>> slug("long, width 64")
        'long--width-64'
    """
    return "".join(c if c.isalnum() else "-" for c in text)


def capitalised(text: str) -> str:
    """Capitalise the first letter, and leave the others."""
    return text[:1].upper() + text[1:]


def seeds(count: int) -> str:
    """Write a number of seeds.

    Example:
        >>> seeds(1), seeds(3)
        ('1 seed', '3 seeds')
    """
    return f"{count} seed" if count == 1 else f"{count} seeds"


def seeds_between(counts: Iterable[int]) -> str:
    """Write the range of several scores' numbers of seeds.

    Example:
        >>> seeds_between([3, 1]), seeds_between([3, 3])
        ('1 to 3 seeds', '3 seeds')
    """
    low, high = min(counts := list(counts)), max(counts)
    return f"{low} to {seeds(high)}" if low < high else seeds(low)


def span(first: str, last: str) -> str:
    """Write a range, or a single value if both ends are the same.

    Example:
        >>> span("1", "3"), span("2", "2")
        ('1 to 3', '2')
    """
    return " to ".join(dict.fromkeys((first, last)))


def mean(rate: Rate) -> str:
    """Write the mean over seeds, or how many runs diverged."""
    return diverged(rate) if rate.num_diverged else number(rate.mean)


def diverged(rate: Rate) -> str:
    """Write how many runs diverged, or that they were stopped halfway because they were far behind."""
    if rate.num_stopped == rate.num_diverged:
        return "stopped halfway, far behind"
    if rate.num_seeds == 1:
        return "the only run diverged"
    return f"{rate.num_diverged} of {rate.num_seeds} runs diverged"


def spread(rate: Rate) -> str:
    """Write the range over the seeds that did not diverge, if there is more than one."""
    finite = list(filter(math.isfinite, rate.values))
    return f"{number(min(finite))} to {number(max(finite))}" if len(finite) > 1 else NOTHING


def in_words(rate: Rate) -> str:
    """Write a score for a sentence: mean, range and number of seeds."""
    if rate.num_diverged:
        others = " and ".join(number(value) for value in rate.values if math.isfinite(value))
        return diverged(rate) + (f", others {others}" if others else "")
    if rate.num_seeds == 1:
        return f"{number(rate.mean)} (1 seed)"
    return f"{number(rate.mean)} ({spread(rate)}, {seeds(rate.num_seeds)})"


def advantage(found: Difference) -> str:
    """Write one score's advantage over another, with its interval if there is one.

    Example:
        >>> advantage(Difference(0.5, 0.25, 0.75, 3)), advantage(Difference(0.5, -math.inf, math.inf, 1))
        ('+0.5 (+0.25 to +0.75)', '+0.5')
    """
    mean, low, high = (f"{value:+.4g}".replace("-", MINUS) for value in found[:3])
    return f"{mean} ({low} to {high})" if found.num_seeds > 1 else mean


def best_in_words(rate: Rate) -> str:
    """Write the score at a learning rate and, if it is the best, how many were tried."""
    return f"{in_words(rate)} at lr {rate.lr:g}" + (f", {choice(rate)}" if rate.is_best else "")


def choice(rate: Rate) -> str:
    """Write how many learning rates were tried, and whether a better one may lie beyond them."""
    if rate.num_rates < 2:
        return "the only one tried"
    end = f" and {rate.end_of_rates}" if rate.end_of_rates else ""
    return f"the best{end} of {rate.num_rates} tried"


def duration(seconds: float) -> str:
    """Write a time in a suitable unit.

    Example:
        >>> duration(0.0123), duration(75.0), duration(7200.0)
        ('12.3 ms', '1.2 min', '2.0 h')
    """
    if math.isnan(seconds):
        return NOTHING
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    unit, length = next(
        (unit, length) for unit, length in (("h", 3600), ("min", 60), ("s", 1)) if seconds >= length
    )
    return f"{seconds / length:.1f} {unit}"


def size(num_bytes: float) -> str:
    """Write a number of bytes, if it is known.

    Example:
        >>> size(2228), size(math.nan) == NOTHING
        ('2.23 kB', True)
    """
    return NOTHING if math.isnan(num_bytes) else human_bytes(num_bytes)
