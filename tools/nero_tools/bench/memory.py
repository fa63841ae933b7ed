"""How much memory there is, how much a step borrows, and which optimizers fit together."""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from nero_tools.bench.competitors import Competitor


def temporary_bytes(step: Callable[[], object], *, device: str) -> int:
    """Return the most memory that one step held beyond what it found, as torch's allocator saw it.

    On CPU the profiler's record of allocations is summed up. It does not see memory that bypasses torch
    (NumPy's, a kernel's own) or that other Python threads allocate: `fresh_process` therefore also
    watches the resident size of a process. On CUDA it is the allocator's own peak.
    """
    if device == "cuda":
        torch.cuda.synchronize()
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - held
    # Kineto reports its own start and stop on stderr unless told not to.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        step()
    events = profile.profiler.kineto_results.events()
    changes = [event.nbytes() for event in events if event.name() == "[memory]"]
    return max(itertools.accumulate(changes), default=0)


def available_bytes(device: str) -> float:
    """Return the memory that can still be used; infinite where the system does not say."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf")
    kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
    return 1024.0 * int(kilobytes)


def last_cache_bytes() -> int:
    """Return the size of the last-level CPU cache, or a guess of 64 MB."""
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    sizes = [p.read_text().strip() for p in folder.glob("index*/size")]
    return max((int(s[:-1]) * {"K": 2**10, "M": 2**20}[s[-1]] for s in sizes), default=64 * 2**20)


def batches_that_fit(
    competitors: Mapping[str, Competitor],
    *,
    parameter_bytes: int,
    available: float,
    always: Sequence[str] = ("sgd-fused", "bare", "nero"),
) -> tuple[list[list[str]], list[str]]:
    """Return which competitors are measured together, so that their state fits, and which fit in no batch.

    One batch is best, because ratios exist only within one. Where it is too large, those of ``always``,
    which keep next to no state, are part of each.
    """

    def fits(names: Sequence[str]) -> bool:
        state = sum(competitors[n].state_copies for n in names)
        temporary = max((competitors[n].temporary_copies for n in names), default=0)
        return (state + temporary) * parameter_bytes <= available

    shared = [n for n in competitors if n in always]
    if not fits(shared):
        return [], [*competitors]
    batches, misfits = [[*shared]], []
    for name in (n for n in competitors if n not in always):
        if fits([*batches[-1], name]):
            batches[-1].append(name)
        elif fits([*shared, name]):
            batches.append([*shared, name])
        else:
            misfits.append(name)
    order = [*competitors]
    return [sorted(batch, key=order.index) for batch in batches if batch], misfits
