"""Runs in a process of its own, for `nero_tools.bench.fresh_process`, and prints one line of JSON."""

import ctypes
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def first_step() -> dict[str, float]:
    """Return the seconds of everything up to a second step."""
    import torch

    start = time.perf_counter()
    from nero import Nero

    imported = time.perf_counter()
    from nero_tools.bench.workload import Workload
    from nero_tools.models import MODELS

    kinds = torch.nn.ModuleList([MODELS["gpt-tiny"](), MODELS["resnet-tiny"]()])
    workload = Workload(kinds, dtype=torch.float32, device="cpu")
    times = [time.perf_counter()]
    optimizer = Nero(workload.model)
    times.append(time.perf_counter())
    for _ in range(2):
        optimizer.step()
        times.append(time.perf_counter())
    names = ("build", "first_step", "second_step")
    spans = {n: b - a for n, a, b in zip(names, times, times[1:], strict=False)}
    return {"import": imported - start, **spans}


def resident(shape: str, competitor: str, dtype: str, threads: str) -> dict[str, int | None]:
    """Return the rise of this process's peak size in a step."""
    import torch

    from nero_tools.bench.competitors import COMPETITORS
    from nero_tools.bench.workload import Workload
    from nero_tools.models import MODELS
    from nero_tools.optimizers import step_all

    torch.set_num_threads(int(threads))
    workload = Workload(MODELS[shape](), dtype=getattr(torch, dtype), device="cpu")
    step = step_all(COMPETITORS[competitor].build(workload.model))
    for _ in range(2):
        step()
        workload.move_gradients_()
    return {"temporary_bytes": _peak_rise(step)}


def _peak_rise(step: Callable[[], object]) -> int | None:
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak becomes the present size
        before = _peak_bytes()
    except (OSError, AttributeError):  # not Linux, or not allowed
        return None
    step()
    return _peak_bytes() - before


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    commands: dict[str, Callable[..., Any]] = {"first-step": first_step, "resident": resident}
    print(json.dumps(commands[sys.argv[1]](*sys.argv[2:])))
