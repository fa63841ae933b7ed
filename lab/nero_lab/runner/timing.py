"""Time optimizer steps: optimizers take turns on one task, on an otherwise idle machine."""

import json
import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

from nero_lab.engine.errors import ConfigError
from nero_lab.engine.loop import Loop
from nero_lab.engine.provenance import provenance
from nero_lab.engine.records import changes_in_words
from nero_lab.engine.task import Setting, Sums
from nero_lab.runner.building import build
from nero_lab.runner.config import RunConfig
from nero_lab.runner.options import in_file_name
from nero_lab.tasks import folder_of

FILE_NAME = "times.json"

IDLE = 0.05
"""The share of the machine that other processes may have taken while we timed."""

WARM_UP = 2  # steps of each optimizer that are not counted


def time_steps(
    configs: Sequence[RunConfig], data_dir: Path, *, num_rounds: int, max_load: float | None = None
) -> dict[str, Any]:
    """Return the time of a step of each optimizer: quartiles in seconds, and where they were measured.

    In each round every optimizer takes one step, so that what slows the machine slows all of them. On a
    CPU it is the time of this process that is counted.

    Args:
        configs: one run of each optimizer, of one task.
        data_dir: the folder of all data sets.
        num_rounds: steps of each optimizer that are counted.
        max_load: the share of the machine that others may take meanwhile; by default `IDLE`.

    Raises:
        ConfigError: if others took more than that, or if an optimizer diverged.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loops = {config.optimizer: _loop(config, data_dir, device) for config in configs}
    batches = {name: loop.batches() for name, loop in loops.items()}
    before = _busy()
    for _ in range(WARM_UP + num_rounds):
        for name, loop in loops.items():
            _, seen = loop.take_step(next(batches[name]))
            _check_finite(name, seen)
    load = _load_of_others(before, _busy())
    if load > (IDLE if max_load is None else max_load):
        raise ConfigError(
            f"other processes used {load:.0%} of the CPU during timing; repeat it on an idle machine"
        )
    first = configs[0]
    return {
        "task": first.task,
        "scale": first.scale,
        "changes": changes_in_words(vars(first)),
        "num_rounds": num_rounds,
        "load_of_others": round(load, 3),
        "seconds": {
            name: [round(value, 6) for value in _quartiles(loop.step_seconds[WARM_UP:])]
            for name, loop in loops.items()
        },
        **provenance(device),
    }


def write_times(times: dict[str, Any], folder: Path) -> Path:
    """Write what ``time_steps`` returned where the report looks for it, and return the file.

    Raises:
        ConfigError: if there are times of further optimizers already: those of one file were in turns.
    """
    task, scale, changes = (str(times[key]) for key in ("task", "scale", "changes"))
    words = [in_file_name(changes)] if changes else []
    path = folder / folder_of(task) / scale / "-".join([*words, FILE_NAME])
    if path.exists():
        old = json.loads(path.read_text(encoding="utf-8"))["seconds"]
        if set(old) - set(times["seconds"]):
            raise ConfigError(
                f"{path} has times for {', '.join(old)}: time all of them together, or remove it first"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(times, indent=2) + "\n", encoding="utf-8")
    return path


def _loop(config: RunConfig, data_dir: Path, device: torch.device) -> Loop:
    setting = Setting(config.recipe, config.seed, data_dir, device, optimizer=config.optimizer)
    experiment, optimizers = build(config, setting)
    loop = Loop(experiment, optimizers, setting)
    loop.begin()
    return loop


def _check_finite(optimizer: str, seen: Sums) -> None:
    if any(not math.isfinite(float(total)) for total, _ in seen.values()):
        raise ConfigError(f"{optimizer} diverged during timing; leave it out, or use another task")


def _quartiles(seconds: Sequence[float]) -> list[float]:
    return statistics.quantiles(seconds, n=4, method="inclusive")


def _busy() -> tuple[float, float, float]:
    """Return wall time, total busy CPU time, and this process's CPU time."""
    times, this = psutil.cpu_times(), psutil.Process()
    idle = times.idle + getattr(times, "iowait", 0.0)
    own = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return time.monotonic(), sum(times) - idle, sum(mine.user + mine.system for mine in own)


def _load_of_others(before: tuple[float, float, float], after: tuple[float, float, float]) -> float:
    elapsed, busy, own = (now - then for now, then in zip(after, before, strict=True))
    return max(busy - own, 0.0) / (elapsed * (psutil.cpu_count() or 1))
