"""Times of a step, as ``nero-lab time`` wrote them."""

import json
from collections.abc import Mapping
from pathlib import Path

MAX_LOAD = 0.05
"""A step that was timed while others took more of the machine has no time in the report."""

Times = Mapping[tuple[str, str, str], Mapping[str, float]]
"""Median seconds by task, scale and variant, and then by optimiser."""


def read_times(folder: Path) -> tuple[Times, dict[Path, str]]:
    """Read every file of times below a folder; return them, and why some were not read."""
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    skipped: dict[Path, str] = {}
    for path in sorted(folder.rglob("*times.json")):
        try:
            times = json.loads(path.read_text(encoding="utf-8"))
            key = times["task"], times["scale"], times["variant"] or ""
            medians = {name: float(median) for name, (_, median, _) in times["seconds"].items()}
            load = float(times["load_of_others"])
        except Exception as error:  # there is no end to what a foreign file may hold
            skipped[path] = f"{type(error).__name__}: {error}"
            continue
        if load > MAX_LOAD:
            skipped[path] = f"timed while other processes took {load:.0%} of the machine"
        else:
            found[key] = medians
    return found, skipped
