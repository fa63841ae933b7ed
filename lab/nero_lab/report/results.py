"""Runs, grouped as the report compares them.

An *arm* is one optimiser at one rate, over seeds. A *line* is one optimiser over rates: what a figure
draws and a table lists.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nero_lab.engine.records import RunRecord
from nero_lab.engine.task import Metric, Task
from nero_lab.report.scores import Score

NERO_LR = 0.01
"""Nero's rate "out of the box", in every task."""


@dataclass(frozen=True)
class Arm:
    """The runs of one optimiser at one rate."""

    lr: float
    runs: tuple[RunRecord, ...]
    metric: Metric

    @property
    def score(self) -> Score | None:
        """The score over all seeds that are done."""
        return self.score_of(self.seeds)

    @property
    def seeds(self) -> frozenset[int]:
        """Seeds of the runs that are done."""
        return frozenset(run.config["seed"] for run in self.runs if run.is_done)

    @property
    def finished(self) -> list[RunRecord]:
        """Runs that came to their end with a score."""
        return [
            run
            for run in self.runs
            if run.status == "finished" and math.isfinite(run.last(self.metric.name))
        ]

    @property
    def strays(self) -> list[RunRecord]:
        """Runs without a score: they diverged, failed, or may still go on."""
        kept = [id(run) for run in self.finished]
        return [run for run in self.runs if id(run) not in kept]

    @property
    def lost(self) -> list[RunRecord]:
        """Runs that diverged."""
        return [run for run in self.strays if run.is_done]

    @property
    def not_counted(self) -> str:
        """Write how many runs may still go on, or failed and can be run again."""
        counts = Counter(run.status for run in self.runs if not run.is_done)
        return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))

    def score_of(self, seeds: Iterable[int]) -> Score | None:
        """Return the score over some of the seeds, or None if no run of them is done."""
        seeds = set(seeds)
        finished = [run for run in self.finished if run.config["seed"] in seeds]
        lost = [run for run in self.lost if run.config["seed"] in seeds]
        if not finished and not lost:
            return None
        values = tuple(run.last(self.metric.name) for run in finished)
        return Score(values, len(lost), self.metric.higher_is_better)

    def end(self, *keys: str) -> float:
        """Return the median over runs of a number of their last record, or NaN."""
        found = [value for run in self.runs if (value := _dig(run.end, keys)) is not None]
        return statistics.median(found) if found else math.nan


@dataclass(frozen=True)
class Line:
    """One optimiser, over rates."""

    optimizer: str
    variant: str  # "" for the recipe as it is
    arms: Mapping[float, Arm]

    @property
    def best(self) -> Arm:
        """The arm at the best rate.

        As in the paper, rates are compared by the seeds that all of them have been run with, so that no
        rate is chosen for having been run once and with luck.
        """
        scored = [arm for arm in self.arms.values() if arm.score] or list(self.arms.values())
        common = frozenset.intersection(*(arm.seeds for arm in scored))

        def rank(arm: Arm) -> tuple[tuple[int, float], int]:
            score = arm.score_of(common) or arm.score
            epochs = max((len(run.epochs) for run in arm.runs), default=0)
            return (score.rank if score else (0, math.inf)), -epochs

        return min(scored, key=rank)

    @property
    def default(self) -> Arm | None:
        """Nero out of the box: its arm at the default rate, if it was run there."""
        return self.arms.get(NERO_LR) if self.optimizer == "nero" else None

    @property
    def shown(self) -> list[Arm]:
        """The best arm and, if it is another, Nero out of the box."""
        best, default = self.best, self.default
        return [best] if default is None or default.lr == best.lr else [best, default]

    @property
    def score(self) -> Score | None:
        """The score at the best rate."""
        return self.best.score

    @property
    def rates(self) -> list[float]:
        """The rates at which a run is done."""
        return [lr for lr, arm in self.arms.items() if arm.score]

    @property
    def end_of_rates(self) -> Literal["", "smallest", "largest"]:
        """Which end of the rates the best one is, if any: a better one may lie beyond."""
        if not self.is_tuned or min(self.rates) < self.best.lr < max(self.rates):
            return ""
        return "smallest" if self.best.lr == min(self.rates) else "largest"

    @property
    def is_tuned(self) -> bool:
        """Whether there was a choice of rates."""
        return len(self.rates) > 1


@dataclass(frozen=True)
class TaskResults:
    """The runs of one task at one scale."""

    task: Task
    scale: str
    runs: tuple[RunRecord, ...]
    lines: tuple[Line, ...]
    other_scales: Mapping[str, int]  # number of runs that are not shown
    not_begun: tuple[RunRecord, ...] = ()  # runs that failed before their first step

    def line(self, optimizer: str, variant: str = "") -> Line | None:
        """Return the line of an optimiser, if it was run."""
        for line in self.lines:
            if (line.optimizer, line.variant) == (optimizer, variant):
                return line
        return None

    def pick(self, optimizers: Iterable[str], variant: str = "") -> dict[str, Line | None]:
        """Return the lines of several optimisers, by name."""
        return {optimizer: self.line(optimizer, variant) for optimizer in optimizers}

    def score(self, optimizer: str, variant: str = "", *, lr: float | None = None) -> Score | None:
        """Return the score of an optimiser at a rate, the best if None, if it was run to its end."""
        line = self.line(optimizer, variant)
        if line is None:
            return None
        arm = line.best if lr is None else line.arms.get(lr)
        return arm.score if arm else None

    @property
    def variants(self) -> list[str]:
        """Variants that were run, the recipe as it is first."""
        return sorted({line.variant for line in self.lines})


def _dig(record: Mapping[str, Any] | None, keys: Iterable[str]) -> Any:
    value: Any = record
    for key in keys:
        value = value.get(key) if value is not None else None
    return value
