"""The table of runs: all records below a folder, read once into data frames.

``runs`` has one row per run. ``epochs`` and ``steps`` have one row per recorded epoch and step, and their
column ``run`` is the run's row.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame

from nero_lab.report.lab import OPTIMIZERS, TASKS, ConfigError, Metric, Task, read_below, records
from nero_lab.report.rates import Rate, rates_table
from nero_lab.report.style import order
from nero_lab.report.times import Times, read_times

SCALES = ("paper", "cpu", "mini", "smoke")

PROTOCOL_SCALE = "mini"
"""The protocol's scale, which has its own tables: see ``protocol.py``."""

_CLOCK = ("seconds", "peak_memory_bytes")


@dataclass(frozen=True)
class Records:
    """The records that were read, and why some files were skipped."""

    runs: DataFrame
    epochs: DataFrame
    steps: DataFrame
    skipped: Mapping[Path, str]
    times: Times


@dataclass(frozen=True)
class Results:
    """One task's runs at one scale."""

    task: Task
    scale: str
    records: Records
    runs: DataFrame
    other_scales: Mapping[str, int]  # number of runs not shown
    not_begun: DataFrame  # runs that failed before their first step
    is_tested: bool = False  # whether scores are test scores; learning rates never depend on those

    @property
    def has_untested(self) -> bool:
        """Whether only some runs have test scores, so that none are used."""
        return not self.is_tested and bool(np.isfinite(self.runs.test_score).any())

    @property
    def metric(self) -> Metric:
        """The scores' metric."""
        metric = self.task.metric
        return metric.tested or metric if self.is_tested else metric

    def step_seconds(self, variant: str) -> Mapping[str, float]:
        """Return step times by optimizer, for optimizers that were timed on an idle machine."""
        name = self.runs.task.iloc[0]  # in a report without the paper, the task itself has no name
        found = self.records.times.get((name, self.scale, variant))
        return found.seconds if found else {}

    @cached_property
    def rates(self) -> DataFrame:
        """One row per optimizer and learning rate: see ``rates_table``."""
        return rates_table(self.runs)

    def best(self, optimizers: Iterable[str], variant: str = "") -> dict[str, Rate]:
        """Return each optimizer's best learning rate, if any of its runs completed."""
        found = self.rates[self.rates.is_best & (self.rates.variant == variant)]
        by_name = {rate.optimizer: rate for rate in found.itertuples() if rate.num_seeds}
        return {name: by_name[name] for name in optimizers if name in by_name}

    def rate(self, optimizer: str, lr: float, variant: str = "") -> Rate | None:
        """Return an optimizer at a learning rate, if any of its runs there completed."""
        where = (self.rates.optimizer == optimizer) & (self.rates.variant == variant)
        found = self.rates[where & (self.rates.lr == lr) & (self.rates.num_seeds > 0)]
        return next(found.itertuples(), None)

    def runs_of(self, rates: DataFrame | Rate) -> DataFrame:
        """Return the runs behind one or several rows of ``rates``, in order."""
        keys = ["variant", "optimizer", "lr"]
        wanted = rates if isinstance(rates, DataFrame) else DataFrame([rates])
        wanted = wanted[keys].reset_index(drop=True)
        return wanted.merge(self.runs.reset_index(), on=keys).set_index("index")


def read_records(folder: Path, tasks: Mapping[str, Task]) -> Records:
    """Read all runs below a folder, ordered by name.

    Files that are not records of a run are skipped. Runs with a broken line are skipped too, because that
    line may have been the last epoch, with the score. The lab's other tasks are left out.
    """
    found: list[records.RunRecord] = []
    rows: list[dict[str, Any]] = []
    runs, skipped = read_below(folder)
    for path, record in runs:
        try:
            row = _row(record)
            if (name := row["task"]) not in {**TASKS, **tasks}:
                raise LookupError(f"{name} is not among this report's tasks: see --tasks")
        except Exception as error:  # a foreign file may contain anything
            skipped[path] = f"{type(error).__name__}: {error}"
            continue
        if name in tasks:
            found.append(record)
            rows.append({**row, **_scores(record, tasks[name].metric)})
    epochs = [{"run": i, **line} for i, record in enumerate(found) for line in record.epochs]
    steps = [{"run": i, **line} for i, record in enumerate(found) for line in record.steps]
    times, not_read = read_times(folder)
    skipped |= not_read
    return Records(DataFrame(rows), DataFrame(epochs), DataFrame(steps), skipped, times)


def collect(
    records: Records, tasks: Mapping[str, Task], scale: str | None = None
) -> dict[str, Results]:
    """Return each task's results, at the given scale or else at the one with the most optimizers.

    Raises:
        ConfigError: if a run has two records, or if runs to be compared had different recipes.
    """
    results = {}
    for name, runs in records.runs.groupby("task", sort=False) if len(records.runs) else ():
        begun = runs[runs.has_begun]
        scales = list(dict.fromkeys((*SCALES, *sorted(begun.scale.unique()))))
        counts = begun.scale.value_counts().reindex(scales).dropna().astype(int)
        ended = begun[begun.is_done].groupby("scale").optimizer.nunique()
        ended = ended.reindex(counts.index, fill_value=0)
        if set(ended.index) - {
            PROTOCOL_SCALE,
            "smoke",
        }:  # the protocol's runs have their own tables
            ended = ended.drop(PROTOCOL_SCALE, errors="ignore")
        chosen = scale or (ended.idxmax() if len(ended) else "")  # in a tie, the largest scale
        kept = begun[begun.scale == chosen]
        if kept.empty:
            continue
        _check(kept)
        not_begun = runs[(runs.scale == chosen) & ~runs.has_begun]
        others = counts.drop([chosen, PROTOCOL_SCALE], errors="ignore").to_dict()
        tested = kept.test_score[kept.is_done]
        is_tested = bool(tested.notna().all() and np.isfinite(tested).any())
        if is_tested:
            kept = kept.assign(score=kept.test_score, badness=kept.test_badness)
        results[name] = Results(tasks[name], chosen, records, kept, others, not_begun, is_tested)
    return results


def _row(record: records.RunRecord) -> dict[str, Any]:
    config, end = record.config, record.end or {}
    clock, hardware = end.get("clock", {}), config.get("hardware")
    versions = config.get("versions", {}).items()
    return {
        **{name: config[name] for name in ("task", "scale", "optimizer", "lr", "seed")},
        "variant": records.changes_in_words(config),
        "place": order(config["optimizer"]),
        "command": config["command"],
        "recipe": config["recipe"],
        "has_options": bool(config["options"]),
        "num_parameters": config.get("num_parameters", 0),
        "commit": config.get("commit"),
        "versions": ", ".join(f"{name} {version}" for name, version in versions),
        "hardware": f"{hardware['device']}, {hardware['cores']} cores, "
        f"threads per run: {hardware['threads']}"
        if hardware
        else None,
        "day": config.get("clock", {}).get("started", "")[:10],
        "status": record.status,
        "is_done": record.is_done,
        # A run that could not even be set up says nothing about its optimizer.
        "has_begun": record.status != "failed" or "step" in end,
        "message": end.get("message", ""),
        "num_epochs": len(record.epochs),
        "end_epoch": end.get("epoch", math.nan),
        "end_step": end.get("step", math.nan),
        **{name: clock.get(name, math.nan) for name in _CLOCK},
        "optimizer_state_bytes": end.get("optimizer_state_bytes", math.nan),
    }


def _scores(record: records.RunRecord, metric: Metric) -> dict[str, float]:
    """Return a run's score, the score that chooses learning rates, and its test score, if any."""
    sign = -1.0 if metric.higher_is_better else 1.0
    score, test = _badness(record, metric.name, sign), math.nan
    if metric.tested and (record.status != "finished" or metric.tested.name in record.epochs[-1]):
        test = _badness(record, metric.tested.name, sign)
    return {
        "score": sign * score,
        "badness": score,
        "valid_badness": score,
        "test_score": sign * test,
        "test_badness": test,
    }


def _badness(record: records.RunRecord, name: str, sign: float) -> float:
    """Return the last value of a score, with its sign set so that lower is better.

    It is infinite if the run diverged, and NaN if the run is not done.
    """
    if not record.is_done:
        return math.nan
    last = sign * record.last(name)
    return last if record.status == "finished" and math.isfinite(last) else math.inf


def _check(runs: DataFrame) -> None:
    """Refuse to compare runs whose recipes differ beyond the options that the user set."""
    twice = runs[runs.duplicated(["optimizer", "variant", "lr", "seed"])]
    if len(twice):
        raise ConfigError(f"there are two records of the same run: {twice.command.iloc[0]!r}")
    entries = runs.optimizer.map(OPTIMIZERS.get)
    has_own_schedule = entries.map(lambda entry: not pd.isna(entry) and entry.warmup_only)
    for _, group in runs.groupby([runs.variant, has_own_schedule]):
        first = group.iloc[0]
        for run in group.itertuples():
            for name, value in run.recipe.items():
                if value != first.recipe[name]:
                    raise ConfigError(
                        f"runs with different recipes cannot be compared: {name} is {value!r} in "
                        f"{run.command!r} and {first.recipe[name]!r} in {first.command!r}"
                    )
