"""Versions and hardware, for the records of measurements."""

import contextlib
import importlib.metadata
import os
import platform
import shlex
import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("torch", "nero-optim", "nero-tools", "numba", "numpy", "triton", "pytorch-optimizer")


def environment(device: str) -> dict[str, Any]:
    """Return date, command, versions and machine."""
    return {
        "schema": 2,
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


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python, torch and the installed ones among ``packages``."""
    installed = {"python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[package] = importlib.metadata.version(package)
    return {**installed, "torch": torch.__version__}


def cpu_name() -> str:
    """Return the processor's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
