"""What a run says: tables for people, JSON with everything needed to judge or repeat it."""

import importlib.metadata
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from nero.bench.rivals import REFERENCES
from nero.bench.run import ModelResult, RivalResult
from nero.bench.timing import Spread
from nero.tables import aligned

_PACKAGES = ("torch", "nero-optim", "numba", "numpy", "triton", "pytorch-optimizer")
_UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass
class Report:
    """The results of a run, and the circumstances."""

    environment: dict[str, Any]
    results: list[ModelResult] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    """Figures that only some commands measure."""

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON's types."""
        return {**self.environment, "results": _plain(self.results), **_plain(self.extra)}

    def tables(self) -> str:
        """Return one table a model."""
        return "\n\n".join(table(result) for result in self.results)


def environment(device: str) -> dict[str, Any]:
    """Return date, command, versions and machine.

    Example:
        >>> from nero.bench import environment
        >>> environment("cpu")["versions"]["torch"] == torch.__version__
        True
    """
    return {
        "schema": 1,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "versions": versions(_PACKAGES),
        "machine": {
            "platform": platform.platform(),
            "cpu": cpu_name(),
            "num_cpus": os.cpu_count(),
            "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        },
    }


def table(result: ModelResult) -> str:
    """Return one model's table, fit for a terminal or a mail."""
    references = [r for r in REFERENCES if any(r in x.ratios for x in result.rivals.values())]
    header = ["rival", "ms", "quartiles", *(f"x {r}" for r in references)]
    header += ["state", "temporary", "left out"]
    rows = [header]
    for name, rival in result.rivals.items():
        rows.append(_row(name, rival, references, result.parameter_bytes))
    where = (
        f"{result.threads} thread{'s' * (result.threads > 1)}"
        if result.device == "cpu"
        else result.device
    )
    lines = [
        f"{result.model}: {result.num_parameters:,} parameters, {result.dtype}, {where}",
        aligned(rows),
    ]
    for name, rival in result.rivals.items():
        if not rival.does_the_work:
            lines.append(
                f"{name} changed only {rival.share_changed:.0%} of the weights: its time says nothing, "
                "and it is no reference"
            )
    disturbed = [n for n, r in result.rivals.items() if r.num_disturbed > r.num_samples / 2]
    if disturbed:
        lines.append(f"other load disturbed most samples of {', '.join(disturbed)}: run it again")
    lines += [f"{name} was not measured: {why}" for name, why in result.left_out.items()]
    return "\n".join(lines)


def human_bytes(num: float) -> str:
    """Write a number of bytes with three digits.

    Example:
        >>> from nero.bench.report import human_bytes
        >>> human_bytes(1292256)
        '1.29 MB'
    """
    unit = 0
    while num >= 999.5 and unit < len(_UNITS) - 1:
        num, unit = num / 1000, unit + 1
    return f"{num:.3g} {_UNITS[unit]}"


def _row(
    name: str, rival: RivalResult, references: Sequence[str], parameter_bytes: int
) -> list[str]:
    ms = rival.milliseconds
    return [
        name,
        "-" if ms is None else f"{ms.median:.3g}" if ms.median < 100 else f"{ms.median:.0f}",
        "-" if ms is None else f"{ms.low:.3g} to {ms.high:.3g}",
        *(_ratio(rival.ratios.get(r)) for r in references),
        human_bytes(rival.state_bytes),
        f"{rival.temporary_bytes / parameter_bytes:.2%}",
        f"{rival.num_disturbed}/{rival.num_samples}",
    ]


def _ratio(ratio: Spread | None) -> str:
    return "-" if ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Spread):
        return value._asdict()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python, of torch and of those packages that are installed.

    Example:
        >>> from nero.bench.report import versions
        >>> sorted(versions(["numpy", "not-a-package"]))
        ['numpy', 'python', 'torch']
    """
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {**found, "torch": torch.__version__}


def cpu_name() -> str:
    """Return the model of the processor, as the system names it.

    Example:
        >>> from nero.bench.report import cpu_name
        >>> isinstance(cpu_name(), str)
        True
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
