"""Numbers as readers see them."""

import math
import re
from html import escape

from nero.numbers import human_bytes
from nero_lab.report.results import Line, TaskResults
from nero_lab.report.scores import Score

MINUS = "\N{MINUS SIGN}"
NOTHING = "\N{EN DASH}"
"""What a cell has that has no number."""


def number(value: float) -> str:
    """Write a number with four digits.

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
    r"""Write text so that Markdown takes none of it for a sign.

    Example:
        >>> plain("<class>/*.JPEG")
        '&lt;class&gt;/\\*.JPEG'
    """
    return re.sub(r"([*_`\\[\]])", r"\\\1", escape(text, quote=False))


def seeds(count: int) -> str:
    """Write a number of seeds.

    Example:
        >>> seeds(1), seeds(3)
        ('1 seed', '3 seeds')
    """
    return f"{count} seed" if count == 1 else f"{count} seeds"


def span(first: str, last: str) -> str:
    """Write a range, or what it begins with if that is its end, too.

    Example:
        >>> span("1", "3"), span("2", "2")
        ('1 to 3', '2')
    """
    return " to ".join(dict.fromkeys((first, last)))


def mean(score: Score | None) -> str:
    """Write the mean of a score, or how many runs were lost."""
    if score is None:
        return NOTHING
    return lost(score) if score.num_lost else number(score.mean)


def lost(score: Score) -> str:
    """Write how many runs of a score were lost.

    Example:
        >>> lost(Score((1.0,), num_lost=2)), lost(Score((), num_lost=1))
        ('2 of 3 runs diverged', 'the only run diverged')
    """
    if score.num_seeds == 1:
        return "the only run diverged"
    return f"{score.num_lost} of {score.num_seeds} runs diverged"


def spread(score: Score | None) -> str:
    """Write the range of a score over the seeds that were not lost, if there are several."""
    if score is None or len(score.values) < 2:
        return NOTHING
    return f"{number(min(score.values))} to {number(max(score.values))}"


def in_words(score: Score) -> str:
    """Write a score in a sentence: mean, range and number of seeds."""
    if score.num_lost:
        rest = f", others {' and '.join(map(number, score.values))}" if score.values else ""
        return lost(score) + rest
    if score.num_seeds == 1:
        return f"{number(score.mean)} (1 seed)"
    return f"{number(score.mean)} ({spread(score)}, {seeds(score.num_seeds)})"


def best_in_words(line: Line) -> str:
    """Write the score of an optimiser at its best rate, and of how many rates it is the best."""
    if line.score is None:
        return "not run"
    return f"{in_words(line.score)} at lr {line.best.lr:g}, {choice(line)}"


def choice(line: Line) -> str:
    """Write of how many rates the best is the best, and whether a better one may lie beyond them."""
    if not line.is_tuned:
        return "the only rate"
    end = f" and the {line.end_of_rates} of them" if line.end_of_rates else ""
    return f"best of {len(line.rates)} rates{end}"


def parameters(results: TaskResults) -> str:
    """Write how large the network was, and how large it is at paper scale if it was shrunk.

    The size at paper scale is rounded to three digits: 11.2M.
    """
    counts = sorted({run.config["num_parameters"] for run in results.runs})
    text = span(f"{counts[0]:,}", f"{counts[-1]:,}")
    full = results.task.paper_parameters
    if full and full > counts[-1]:
        text += f" of {full / 1e6:.3g}M"
    return f"{text} parameters"


def duration(seconds: float) -> str:
    """Write a time with a unit that suits it.

    Example:
        >>> duration(0.0123), duration(75.0), duration(7200.0)
        ('12.3 ms', '1.2 min', '2.0 h')
    """
    if math.isnan(seconds):
        return NOTHING
    for unit, size, below in (("ms", 1e-3, 1.0), ("s", 1.0, 60.0), ("min", 60.0, 3600.0)):
        if seconds < below:
            return (
                f"{seconds / size:.3g} {unit}" if unit == "ms" else f"{seconds / size:.1f} {unit}"
            )
    return f"{seconds / 3600:.1f} h"


def size(num_bytes: float) -> str:
    """Write a number of bytes, if it is known.

    Example:
        >>> size(2228), size(math.nan) == NOTHING
        ('2.23 kB', True)
    """
    return NOTHING if math.isnan(num_bytes) else human_bytes(num_bytes)
