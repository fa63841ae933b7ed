"""Runs, grouped as the report compares them.

An *arm* is one optimiser at one rate, over seeds. A *line* is one optimiser over rates: what a figure
draws and a table lists. A score is the value of the task's metric after the last epoch, as in the
paper; a run that diverged or failed has none and counts as worse than any other.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nero_lab.config import ConfigError
from nero_lab.records import RunRecord
from nero_lab.task import Metric, Task

SCALES = ("paper", "cpu", "smoke")
NERO_LR = 0.01
"""Nero's rate "out of the box", in every task."""

Comparison = Literal["better", "worse", "overlap"]


@dataclass(frozen=True)
class Score:
    """Mean and range over seeds of the last value of a metric."""

    values: tuple[float, ...]  # of the runs that came to their end
    num_lost: int = 0  # runs that diverged or failed
    higher_is_better: bool = False

    @property
    def num_seeds(self) -> int:
        """Runs, whether they came to their end or not."""
        return len(self.values) + self.num_lost

    @property
    def worst_possible(self) -> float:
        """The score of a run that was lost."""
        return -math.inf if self.higher_is_better else math.inf

    @property
    def all_values(self) -> tuple[float, ...]:
        """One value a seed."""
        return self.values + (self.worst_possible,) * self.num_lost

    @property
    def mean(self) -> float:
        """Mean over seeds; infinitely bad if one was lost."""
        return self.worst_possible if self.num_lost else statistics.fmean(self.values)

    @property
    def low(self) -> float:
        """Lowest value."""
        return min(self.all_values)

    @property
    def high(self) -> float:
        """Highest value."""
        return max(self.all_values)

    @property
    def badness(self) -> float:
        """The mean, turned so that lower is better."""
        return -self.mean if self.higher_is_better else self.mean

    def against(self, other: "Score") -> Comparison:
        """Compare: a difference counts if the ranges over seeds do not overlap."""
        if self.low <= other.high and other.low <= self.high:
            return "overlap"
        return "better" if self.badness < other.badness else "worse"


@dataclass(frozen=True)
class Arm:
    """The runs of one optimiser at one rate."""

    lr: float
    runs: tuple[RunRecord, ...]
    metric: Metric

    @property
    def score(self) -> Score | None:
        """The score over all seeds that have ended."""
        return self.score_of(self.seeds)

    @property
    def seeds(self) -> frozenset[int]:
        """Seeds of the runs that have ended."""
        return frozenset(run.config["seed"] for run in self.runs if run.status != "unfinished")

    @property
    def finished(self) -> list[RunRecord]:
        """Runs that came to their end with a score."""
        return [
            run
            for run in self.runs
            if run.status == "finished" and math.isfinite(final(run, self.metric.name))
        ]

    @property
    def lost(self) -> list[RunRecord]:
        """Runs that diverged or failed."""
        kept = [id(run) for run in self.finished]
        return [run for run in self.runs if run.status != "unfinished" and id(run) not in kept]

    def score_of(self, seeds: Iterable[int]) -> Score | None:
        """Return the score over some of the seeds, or None if no run of them has ended."""
        seeds = set(seeds)
        values = tuple(
            final(run, self.metric.name) for run in self.finished if run.config["seed"] in seeds
        )
        num_lost = sum(run.config["seed"] in seeds for run in self.lost)
        if not values and not num_lost:
            return None
        return Score(values, num_lost, self.metric.higher_is_better)

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

        def badness(arm: Arm) -> tuple[float, float]:
            score = arm.score_of(common) or arm.score
            epochs = max((len(run.epochs) for run in arm.runs), default=0)
            return (score.badness if score else math.inf, -epochs)

        return min(scored, key=badness)

    @property
    def score(self) -> Score | None:
        """The score at the best rate."""
        return self.best.score

    @property
    def is_tuned(self) -> bool:
        """Whether there was a choice of rates."""
        return len([arm for arm in self.arms.values() if arm.score]) > 1


@dataclass(frozen=True)
class TaskResults:
    """The runs of one task at one scale."""

    task: Task
    scale: str
    runs: tuple[RunRecord, ...]
    lines: tuple[Line, ...]
    other_scales: Mapping[str, int]  # number of runs that are not shown

    def line(self, optimizer: str, variant: str = "") -> Line | None:
        """Return the line of an optimiser, if it was run."""
        for line in self.lines:
            if (line.optimizer, line.variant) == (optimizer, variant):
                return line
        return None

    def score(self, optimizer: str, variant: str = "") -> Score | None:
        """Return the score of an optimiser at its best rate, if it was run to its end."""
        line = self.line(optimizer, variant)
        return line.score if line else None

    @property
    def variants(self) -> list[str]:
        """Variants that were run, the recipe as it is first."""
        return sorted({line.variant for line in self.lines})


def collect(
    records: Iterable[RunRecord],
    tasks: Mapping[str, Task],
    order: Callable[[str], int],
    scale: str | None = None,
) -> dict[str, TaskResults]:
    """Group records by task, at the given scale or else the largest that there is."""
    by_task: dict[str, list[RunRecord]] = {}
    for record in records:
        name = record.config["task"]
        if name not in tasks:
            raise ConfigError(f"there are records of a task {name!r}, which does not exist")
        by_task.setdefault(name, []).append(record)
    found = {}
    for name, runs in by_task.items():
        counts = {
            known: sum(run.config["scale"] == known for run in runs)
            for known in SCALES
            if any(run.config["scale"] == known for run in runs)
        }
        chosen = scale or next(iter(counts))
        kept = tuple(run for run in runs if run.config["scale"] == chosen)
        if kept:
            others = {known: count for known, count in counts.items() if known != chosen}
            lines = _lines(kept, tasks[name].metric, order)
            found[name] = TaskResults(tasks[name], chosen, kept, lines, others)
    return found


def final(run: RunRecord, metric: str) -> float:
    """Return the last value of a metric that is a number; an epoch may have none to average."""
    values = [float(epoch.get(metric, math.nan)) for epoch in run.epochs]
    return next((value for value in reversed(values) if not math.isnan(value)), math.nan)


def variant_of(config: Mapping[str, Any]) -> str:
    """Say in words how the recipe of a run was changed."""
    words = [config["variant"]] if config["variant"] else []
    words += [f"{name} {value}" for name, value in sorted(config["options"].items())]
    words += [f"{config['epochs']} epochs"] if config["epochs"] is not None else []
    return ", ".join(words)


def _lines(
    runs: Iterable[RunRecord], metric: Metric, order: Callable[[str], int]
) -> tuple[Line, ...]:
    grouped: dict[tuple[str, str], dict[float, dict[int, RunRecord]]] = {}
    for run in runs:
        key = (run.config["optimizer"], variant_of(run.config))
        seeds = grouped.setdefault(key, {}).setdefault(run.config["lr"], {})
        if run.config["seed"] in seeds:
            raise ConfigError(f"there are two records of the run {run.config['command']!r}")
        seeds[run.config["seed"]] = run
    lines = [
        Line(
            optimizer,
            variant,
            {lr: Arm(lr, tuple(arms[lr].values()), metric) for lr in sorted(arms)},
        )
        for (optimizer, variant), arms in grouped.items()
    ]
    return tuple(sorted(lines, key=lambda line: (line.variant, order(line.optimizer))))


def _dig(record: Mapping[str, Any] | None, keys: Iterable[str]) -> Any:
    value: Any = record
    for key in keys:
        value = value.get(key) if value is not None else None
    return value
