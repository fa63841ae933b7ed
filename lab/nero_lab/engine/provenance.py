"""A record's provenance: versions, commit and hardware."""

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from nero.cli.environment import cpu_name, versions

_PACKAGES = (
    "nero-optim",
    "nero-lab",
    "torch",
    "numba",
    "schedulefree",
    "prodigyopt",
    "pytorch-optimizer",
    "stable_baselines3",
    "ray",
)


def provenance(device: torch.device) -> dict[str, Any]:
    """Describe the software and hardware of this process."""
    return {"versions": versions(_PACKAGES), "commit": _commit(), "hardware": _hardware(device)}


def peak_memory_bytes(device: torch.device) -> int:
    """Return the most memory that this process, or its device, has held."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _commit() -> str | None:
    lab = Path(__file__).parents[2]
    git = ["git", "-C", str(lab)]
    try:
        commit = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
        changes = subprocess.run(
            [*git, "status", "--porcelain", "--", "nero_lab", "../src"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None  # installed from a wheel
    return commit.stdout.strip() + ("+changes" if changes.stdout.strip() else "")


def _hardware(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()
    return {"device": name, "cores": os.cpu_count(), "threads": torch.get_num_threads()}
