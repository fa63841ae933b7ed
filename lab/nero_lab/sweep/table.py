"""The table at the end of a sweep."""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from nero_lab.engine.records import RunRecord
from nero_lab.runner.config import RunConfig

Found = tuple[RunConfig, RunRecord | None]


@dataclass(frozen=True)
class Row:
    """The runs of one optimizer at one rate: their scores over the seeds, and how they ended."""

    variant: str | None
    optimizer: str
    lr: float
    scores: tuple[float, ...]  # of the runs that finished
    statuses: Counter[str]

    @property
    def mean(self) -> float:
        """The mean over the runs that finished."""
        return statistics.fmean(self.scores) if self.scores else math.nan

    @property
    def can_be_best(self) -> bool:
        """Whether every seed finished: a rate at which some diverge is not to be recommended."""
        return self.statuses.keys() == {"finished"} and math.isfinite(self.mean)


def rows(found: Sequence[Found]) -> list[Row]:
    """Gather runs that differ only in the seed."""

    def key(item: Found) -> tuple[str, str, float]:
        assert item[0].lr is not None
        return item[0].variant or "", item[0].optimizer, item[0].lr

    gathered = []
    for (variant, optimizer, lr), items in itertools.groupby(sorted(found, key=key), key):
        pairs = [(config.task_spec.metric.name, record) for config, record in items]
        scores = [
            record.last(name) for name, record in pairs if record and record.status == "finished"
        ]
        statuses = Counter(record.status if record else "unfinished" for _, record in pairs)
        gathered.append(Row(variant or None, optimizer, lr, tuple(scores), Counter(statuses)))
    return gathered


def best(rows: Sequence[Row], *, higher_is_better: bool) -> Row | None:
    """Return the row with the best mean among those of which every seed finished."""
    choose = max if higher_is_better else min
    return choose((row for row in rows if row.can_be_best), key=lambda r: r.mean, default=None)


def print_table(found: Sequence[Found]) -> None:
    """Print a row for each optimizer and rate, and mark the best rate of each optimizer."""
    metric = found[0][0].task_spec.metric
    table = Table("optimizer", box=None, header_style="bold")
    for title in ("lr", "mean", "lowest", "highest"):
        table.add_column(title, justify="right")
    table.add_column("runs")
    table.add_column("")
    counts = {}
    for (variant, optimizer), group in itertools.groupby(
        rows(found), lambda row: (row.variant, row.optimizer)
    ):
        tried = list(group)
        counts[optimizer] = len(tried)
        chosen = best(tried, higher_is_better=metric.higher_is_better)
        for row in tried:
            runs = ", ".join(f"{count} {status}" for status, count in row.statuses.items())
            scores = (row.mean, min(row.scores), max(row.scores)) if row.scores else ()
            name = f"{optimizer} ({variant})" if variant else optimizer
            cells = [f"{score:.4g}" for score in scores] or ["-", "-", "-"]
            table.add_row(name, f"{row.lr:g}", *cells, runs, _mark(row, chosen, tried))
    console = Console()
    console.print(f"{metric.label} after the last epoch, over seeds:", highlight=False)
    console.print(table)
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{optimizer} {count}" for optimizer, count in counts.items())
        console.print(
            f"Optimizers were tuned over different numbers of learning rates: {said}.",
            highlight=False,
        )


def _mark(row: Row, chosen: Row | None, tried: Sequence[Row]) -> str:
    if row is not chosen:
        return ""
    is_edge = len(tried) > 2 and row in (tried[0], tried[-1])
    return "best, but at the end of the grid" if is_edge else "best"
