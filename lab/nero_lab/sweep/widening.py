"""Rates beyond the ends of a grid, where the best rate of an optimizer lies at one of them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from nero_lab.runner.config import RunConfig
from nero_lab.sweep.table import Found, Row, best, rows

MAX_ADDED = 4
"""Rates that are added to a grid of the lab at most."""


def wider(found: Sequence[Found], *, max_rates: int) -> list[RunConfig]:
    """Return the runs that a sweep should make next, if any: one more rate of some optimizers.

    An optimizer whose best rate is the smallest or the largest of those tried gets one beyond it. Once no
    best learning rate is at an end, shorter grids are extended to the length of the longest: the report
    never declares a winner that had a larger grid.

    Args:
        found: the runs so far, each with its record.
        max_rates: rates that an optimizer may have in the end.
    """
    if not all(record and record.is_done for _, record in found):
        return []
    higher = found[0][0].task_spec.metric.higher_is_better
    tried = [row for row in rows(found) if row.lr > 0]
    lines = [list(line) for _, line in groupby(tried, lambda row: (row.variant, row.optimizer))]
    open_ended = [
        (line, end)
        for line in lines
        if 1 < len(line) < max_rates
        for end in [open_end(line, best(line, higher_is_better=higher))]
        if end is not None
    ]
    most = min(max_rates, max(map(len, lines), default=0))
    behind = [(line, _better_end(line, higher)) for line in lines if 1 < len(line) < most]
    return [
        replace(config, lr=beyond(line, end))
        for line, end in open_ended or behind
        for config, _ in found
        if (config.variant, config.optimizer, config.lr)
        == (line[0].variant, line[0].optimizer, line[0].lr)
    ]


def open_end(line: Sequence[Row], chosen: Row | None) -> int | None:
    """Return the index of the end beyond which a better rate may lie: 0, -1 or None."""
    if chosen is None:  # all diverged, in some seed
        return 0
    return {line[0].lr: 0, line[-1].lr: -1}.get(chosen.lr)


def _better_end(line: Sequence[Row], higher_is_better: bool) -> int:
    return -1 if best((line[0], line[-1]), higher_is_better=higher_is_better) is line[-1] else 0


def beyond(line: Sequence[Row], end: int) -> float:
    """Return the next rate beyond an end, as far from it as its neighbour or twice, to one digit.

    Example:
        >>> from collections import Counter
        >>> line = [Row(None, "nero", lr, (), Counter()) for lr in (0.01, 0.03, 0.1)]
        >>> beyond(line, -1), beyond(line, 0)
        (0.3, 0.003)
    """
    neighbour = line[1] if end == 0 else line[-2]
    ratio = line[end].lr / neighbour.lr
    rate = line[end].lr * (min(ratio, 0.5) if ratio < 1 else max(ratio, 2.0))
    return round(rate, -math.floor(math.log10(rate)))
