"""Collect everything for one GPU report: device, kernel self-tests, step times, memory and training."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from nero.cli.doctor import self_tests
from nero.cli.environment import environment
from nero_tools.bench.competitors import QUICK
from nero_tools.bench.run import Options, measure_model
from nero_tools.gpu_kit.capture import captures
from nero_tools.gpu_kit.curves import curves
from nero_tools.models import MODELS

SCHEMA = 1
OPTIMIZERS = ("sgd-fused", "adamw-fused", "muon", "nero", "nero-rows", "nero-polar", "nero-plain")
PRESETS = ("paper", "rows", "polar")


@dataclass(frozen=True)
class Scale:
    """How much to measure."""

    models: tuple[str, ...]
    rounds: int
    curve_model: str
    num_steps: int


FULL = Scale(("gpt-small", "resnet50", "vit-b16", "gpt2-124m", "gpt2-350m"), 15, "gpt-small", 50)
TINY = Scale(("gpt-tiny", "resnet-tiny"), 2, "gpt-tiny", 5)


def make_kit(device: str, scale: Scale, show: Callable[[str], None]) -> dict[str, Any]:
    """Measure, and return what becomes the file."""
    kit: dict[str, Any] = {
        **environment(device),
        "kit_schema": SCHEMA,
        "device": describe_device(device),
        "scale": asdict(scale),
    }
    show("self-tests of the kernel")
    dtypes = [torch.float32, torch.bfloat16, torch.float16]
    kit["self_tests"] = self_tests([torch.device(device)], dtypes)
    kit["steps"] = []
    chosen = {name: QUICK[name] for name in OPTIMIZERS}
    for name in scale.models:
        options = Options(device=device, rounds=scale.rounds, threads=torch.get_num_threads())
        on_progress = partial(_show_model, show, name)
        result = measure_model(name, MODELS[name], chosen, options, on_progress=on_progress)
        kit["steps"].append(asdict(result))
    show("CUDA graphs")
    kit["captures"] = captures(device, PRESETS)
    show("training curves")
    kit["curves"] = curves(device, PRESETS, scale.curve_model, scale.num_steps)
    return kit


def _show_model(show: Callable[[str], None], name: str, what: str) -> None:
    show(f"{name}: {what}")


def describe_device(device: str) -> dict[str, Any]:
    """Return what torch and the driver say of a device."""
    found: dict[str, Any] = {"type": device, "cuda": torch.version.cuda, "hip": torch.version.hip}
    if device == "cpu":
        return {**found, "name": "CPU", "driver": None, "memory_bytes": None, "capability": None}
    properties = torch.cuda.get_device_properties(0)
    return {
        **found,
        "name": properties.name,
        "driver": _driver(),
        "memory_bytes": properties.total_memory,
        "capability": getattr(properties, "gcnArchName", None)
        if torch.version.hip
        else f"sm_{properties.major}{properties.minor}",
        "num_multiprocessors": properties.multi_processor_count,
    }


def _driver() -> str | None:
    """Return the driver's version, if its own tool tells it."""
    queries = {
        "nvidia-smi": ["--query-gpu=driver_version", "--format=csv,noheader"],
        "rocm-smi": ["--showdriverversion"],
    }
    for tool, arguments in queries.items():
        if path := shutil.which(tool):
            done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return done.stdout.strip()
    return None
