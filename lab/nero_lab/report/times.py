"""Times of a step, as ``nero-lab time`` wrote them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nero_lab.report.lab import IDLE


@dataclass(frozen=True)
class StepTimes:
    """Median seconds of a step by optimizer, and where they were measured."""

    seconds: Mapping[str, float]
    where: str


Times = Mapping[tuple[str, str, str], StepTimes]
"""By task, scale and how the recipe was changed."""


def read_times(folder: Path) -> tuple[Times, dict[Path, str]]:
    """Read every file of times below a folder; return them, and why some were not read."""
    found: dict[tuple[str, str, str], StepTimes] = {}
    skipped: dict[Path, str] = {}
    for path in sorted(folder.rglob("*times.json")):
        try:
            times = json.loads(path.read_text(encoding="utf-8"))
            key = str(times["task"]), str(times["scale"]), str(times["changes"])
            seconds = {name: float(median) for name, (_, median, _) in times["seconds"].items()}
            load, hardware = float(times["load_of_others"]), times["hardware"]
            where = f"{hardware['device']}, threads: {hardware['threads']}"
        except Exception as error:  # there is no end to what a foreign file may hold
            skipped[path] = f"{type(error).__name__}: {error}"
            continue
        if load > IDLE:
            skipped[path] = f"timed while other processes took {load:.0%} of the machine"
        elif key in found:
            skipped[path] = "there is another file of times for the same runs"
        else:
            found[key] = StepTimes(seconds, where)
    return found, skipped
