"""Records, sorted into tasks, lines and arms."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nero_lab.engine.errors import ConfigError
from nero_lab.engine.optimizers import OPTIMIZERS
from nero_lab.engine.records import RunRecord
from nero_lab.engine.task import Metric, Task
from nero_lab.report.results import Arm, Line, TaskResults

SCALES = ("paper", "cpu", "smoke")


def collect(
    records: Iterable[RunRecord],
    tasks: Mapping[str, Task],
    order: Callable[[str], int],
    scale: str | None = None,
) -> dict[str, TaskResults]:
    """Group records by task, at the given scale or else that at which most optimisers were run.

    Args:
        records: of a folder of runs as they are, or of files copied from there.
        tasks: by name.
        order: the place of an optimiser in tables and legends.
        scale: what to show of each task.

    Raises:
        ConfigError: if a task does not exist, if there are two records of one run, or if runs that would
            be compared had different recipes.
    """
    by_task: dict[str, list[RunRecord]] = {}
    for record in records:
        name = record.config["task"]
        if name not in tasks:
            raise ConfigError(f"there are records of a task {name!r}, which does not exist")
        by_task.setdefault(name, []).append(record)
    found = {name: _at_scale(tasks[name], runs, order, scale) for name, runs in by_task.items()}
    return {name: results for name, results in found.items() if results is not None}


def _at_scale(
    task: Task, runs: Sequence[RunRecord], order: Callable[[str], int], scale: str | None
) -> TaskResults | None:
    begun = [run for run in runs if _has_begun(run)]
    counts = {
        known: count
        for known in SCALES
        if (count := sum(run.config["scale"] == known for run in begun))
    }
    chosen = scale or max(counts, key=lambda known: _num_optimizers(begun, known), default=None)
    kept = tuple(run for run in begun if run.config["scale"] == chosen)
    if chosen is None or not kept:
        return None
    _check_recipes(kept)
    return TaskResults(
        task,
        chosen,
        kept,
        _lines(kept, task.metric, order),
        {known: count for known, count in counts.items() if known != chosen},
        tuple(run for run in runs if run.config["scale"] == chosen and not _has_begun(run)),
    )


def _has_begun(run: RunRecord) -> bool:
    """Say whether a run took a step; if it could not even be set up, that tells nothing of optimisers."""
    return run.status != "failed" or (run.end is not None and "step" in run.end)


def _num_optimizers(runs: Iterable[RunRecord], scale: str) -> int:
    """Count the optimisers that came to their end at a scale: one run that was begun shows nothing yet."""
    ended = [run for run in runs if run.config["scale"] == scale and run.is_done]
    return len({run.config["optimizer"] for run in ended})


def _check_recipes(runs: Iterable[RunRecord]) -> None:
    """Refuse to compare runs whose recipes differ by more than they were asked to."""
    seen: dict[tuple[str, bool], RunRecord] = {}
    for run in runs:
        entry = OPTIMIZERS.get(run.config["optimizer"])
        has_own_schedule = entry is not None and entry.warmup_only
        first = seen.setdefault((_variant_of(run.config), has_own_schedule), run)
        for name, value in run.config["recipe"].items():
            other = first.config["recipe"][name]
            if value != other:
                raise ConfigError(
                    f"runs with different recipes cannot be compared: {name} is {value!r} in "
                    f"{run.config['command']!r} and {other!r} in {first.config['command']!r}"
                )


def _lines(
    runs: Iterable[RunRecord], metric: Metric, order: Callable[[str], int]
) -> tuple[Line, ...]:
    grouped: dict[tuple[str, str], dict[float, dict[int, RunRecord]]] = {}
    for run in runs:
        key = (run.config["optimizer"], _variant_of(run.config))
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


def _variant_of(config: Mapping[str, Any]) -> str:
    """Say in words how the recipe of a run was changed."""
    words = [config["variant"]] if config["variant"] else []
    words += [f"{name} {value}" for name, value in sorted(config["options"].items())]
    words += [f"{config['epochs']} epochs"] if config["epochs"] is not None else []
    return ", ".join(words)
