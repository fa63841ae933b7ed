"""Records of runs that never happened, of which every number is known."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nero_lab.engine import records
from nero_lab.report.claims import CLAIMS
from nero_lab.report.rates import Rate
from nero_lab.report.runs import PROTOCOL_SCALE, Results, collect, read_records
from nero_lab.report.verdicts import Verdict
from nero_lab.runner.config import RunConfig
from nero_lab.tasks import TASKS

METRICS = {name: task.metric.name for name, task in TASKS.items()}


def write_run(
    folder: Path,
    config: RunConfig,
    values: Sequence[float],
    *,
    status: str = "finished",
    epoch: float | None = None,
    test: float | None = None,
) -> None:
    """Write what a run leaves: its metric takes the given values, and it may have a test score."""
    recipe, metric = config.recipe, METRICS[config.task]
    described = {name: getattr(config, name) for name in ("task", "scale", "optimizer", "lr")}
    described |= {"seed": config.seed, "variant": config.variant, "epochs": config.epochs}
    lines: list[dict[str, Any]] = [
        {
            "kind": "run",
            **described,
            "options": dict(config.options),
            "recipe": {
                "epochs": recipe.epochs,
                "batch_size": recipe.batch_size,
                "schedule": repr(recipe.schedule),
                "clip_norm": recipe.clip_norm,
                "precision": recipe.precision,
                "options": dict(recipe.options),
            },
            "command": config.command,
            "num_parameters": 1000,
            "versions": {"torch": "2.13.0"},
            "commit": "0123abc",
            "hardware": {"device": "a CPU", "cores": 2, "threads": 1},
            "clock": {"started": "2026-01-02T03:04:05+00:00"},
        }
    ]
    for index, value in enumerate(values):
        lines.append({"kind": "epoch", "epoch": index + 1, "step": 10 * (index + 1), metric: value})
        step = {"step": 10 * (index + 1), "epoch": index + 1.0, "lr": config.lr}
        lines.append({"kind": "step", **step, metric.split("_", 1)[1]: value})
    if test is not None:
        next(line for line in reversed(lines) if line["kind"] == "epoch")[
            metric.replace("valid_", "test_")
        ] = test
    if status != "unfinished":
        end = float(len(values) if epoch is None else epoch)
        clock = {"seconds": 60.0, "seconds_per_step": 0.25, "peak_memory_bytes": 5_000_000}
        lines.append(
            {
                "kind": "end",
                "status": status,
                "step": int(10 * end),
                "epoch": end,
                "optimizer_state_bytes": 4000,
                "clock": clock,
            }
        )
    path = folder / config.name / records.FILE_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_times(path: Path, task: str, seconds: Mapping[str, Sequence[float]], **more: Any) -> None:
    """Write the quartiles of a step by optimizer, as ``nero-lab time`` does on an idle machine."""
    times = {"task": task, "scale": "cpu", "changes": "", "load_of_others": 0.01}
    hardware = {"device": "a CPU", "threads": 1}
    path.write_text(json.dumps({**times, "hardware": hardware, "seconds": seconds, **more}))


def write_finals(
    folder: Path, task: str, finals: Mapping[str, Sequence[float]], *, scale: str = "cpu"
) -> None:
    """Write runs of several optimizers, a seed for each final value."""
    for optimizer, values in finals.items():
        for seed, value in enumerate(values):
            write_run(folder, RunConfig(task, scale, optimizer, seed=seed), [2 * value, value])


def report_text(out: Path, ending: str = "md") -> str:
    """Return all pages of a report, the first one first."""
    first = out / f"report.{ending}"
    others = sorted(path for path in out.glob(f"*.{ending}") if path != first)
    return "".join(path.read_text(encoding="utf-8") for path in (first, *others))


def read_results(folder: Path, scale: str | None = None) -> dict[str, Results]:
    """Return the results in a folder by task."""
    return collect(read_records(folder, TASKS), TASKS, scale)


def best_of(results: Results, optimizer: str) -> Rate:
    """Return the best rate of an optimizer that was run."""
    return results.best([optimizer])[optimizer]


def judge(folder: Path, key: str) -> Verdict:
    """Return what the records in a folder say of a claim."""
    claim = next(claim for claim in CLAIMS if claim.key == key)
    return claim.verdict(read_results(folder), read_results(folder, PROTOCOL_SCALE))
