"""What a record says of its origin: versions, commit, hardware."""

import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

_PACKAGES = (
    "nero-optim",
    "torch",
    "numba",
    "schedulefree",
    "prodigyopt",
    "stable_baselines3",
    "ray",
)


def provenance(device: torch.device) -> dict[str, Any]:
    """Describe the software and hardware of this process."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"versions": versions, "commit": _commit(), "hardware": _hardware(device)}


def peak_memory_bytes(device: torch.device) -> int:
    """Return the most memory that this process, or its device, has held."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _commit() -> str | None:
    folder = Path(__file__).parent
    git = ["git", "-C", str(folder)]
    try:
        commit = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
        changes = subprocess.run(
            [*git, "status", "--porcelain", "--", ".", "../../src"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None  # installed from a wheel
    return commit.stdout.strip() + ("+changes" if changes.stdout.strip() else "")


def _hardware(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu()
    return {"device": name, "cores": os.cpu_count(), "threads": torch.get_num_threads()}


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
