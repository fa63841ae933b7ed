"""Step times, as written by ``nero-lab time``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nero_lab.report.lab import IDLE


@dataclass(frozen=True)
class StepTimes:
    """Median step times in seconds, by optimizer, and the machine they were measured on."""

    seconds: Mapping[str, float]
    where: str


Times = Mapping[tuple[str, str, str], StepTimes]
"""By task, scale and changes to the recipe."""


def read_times(folder: Path) -> tuple[Times, dict[Path, str]]:
    """Read all files of step times below a folder; return the times, and why files were skipped."""
    found: dict[tuple[str, str, str], StepTimes] = {}
    skipped: dict[Path, str] = {}
    for path in sorted(folder.rglob("*times.json")):
        try:
            times = json.loads(path.read_text(encoding="utf-8"))
            key = str(times["task"]), str(times["scale"]), str(times["changes"])
            seconds = {name: float(median) for name, (_, median, _) in times["seconds"].items()}
            load, hardware = float(times["load_of_others"]), times["hardware"]
            where = f"{hardware['device']}, threads: {hardware['threads']}"
        except Exception as error:  # a foreign file may contain anything
            skipped[path] = f"{type(error).__name__}: {error}"
            continue
        if load > IDLE:
            skipped[path] = f"timed while other processes used {load:.0%} of the CPU"
        elif key in found:
            skipped[path] = "another file has step times for the same runs"
        else:
            found[key] = StepTimes(seconds, where)
    return found, skipped
