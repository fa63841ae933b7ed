"""Benchmark one model: build it, time all optimizers in turn, and summarize the times."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from nero.core.precision import dtype_name
from nero_tools.bench.competitors import REFERENCES, Competitor
from nero_tools.bench.memory import (
    available_bytes,
    batches_that_fit,
    last_cache_bytes,
    temporary_bytes,
)
from nero_tools.bench.timing import Spread, Timings, interleave, spread
from nero_tools.bench.workload import Workload
from nero_tools.optimizers import state_bytes, step_all

# A competitor that changes fewer of the weights than this does not do the work.
MIN_SHARE_CHANGED = 0.5
_MAX_EVICTED_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Options:
    """What is the same for all competitors of a run."""

    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    threads: int = 1
    rounds: int = 15
    settle_seconds: float = 0.02
    evict_bytes: int = field(
        default_factory=lambda: min(last_cache_bytes() * 5 // 4, _MAX_EVICTED_BYTES)
    )


@dataclass(frozen=True)
class StepResult:
    """A step of one competitor on one model; times in milliseconds, ratios within rounds."""

    milliseconds: Spread | None
    ratios: dict[str, Spread | None]
    state_bytes: int
    temporary_bytes: int
    share_changed: float
    num_samples: int
    num_disturbed: int
    moved_bytes: int = 0
    """Weights and state in and out, and gradients in."""
    noisy_milliseconds: Spread | None = None
    """Of all samples, if other load disturbed every one of them."""
    noisy_ratios: dict[str, Spread | None] = field(default_factory=dict)
    """Of all rounds, for references without a round in which neither was disturbed."""

    @property
    def gigabytes_per_second(self) -> float | None:
        """The bandwidth that it reached, from noisy times if there are no others."""
        ms = self.milliseconds or self.noisy_milliseconds
        return None if ms is None else self.moved_bytes / ms.median / 1e6

    @property
    def does_the_work(self) -> bool:
        """Whether it changed the weights that it should."""
        return self.share_changed >= MIN_SHARE_CHANGED


@dataclass
class ModelResult:
    """All competitors on one model."""

    model: str
    num_parameters: int
    parameter_bytes: int
    dtype: str
    device: str
    threads: int
    optimizers: dict[str, StepResult] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """Competitors that were not measured, and why."""


def measure_model(
    name: str,
    build: Callable[[], nn.Module],
    competitors: Mapping[str, Competitor],
    options: Options,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
) -> ModelResult:
    """Time one step of every competitor on one model, and measure its state and temporaries.

    Sets torch's number of threads while it runs.
    """
    with torch.device("meta"):
        num_parameters = sum(p.numel() for p in build().parameters())
    result = ModelResult(
        model=name,
        num_parameters=num_parameters,
        parameter_bytes=num_parameters * options.dtype.itemsize,
        dtype=dtype_name(options.dtype),
        device=options.device,
        threads=options.threads,
    )
    for each, competitor in competitors.items():
        if why := _why_not(competitor, num_parameters, options):
            result.left_out[each] = why
    able = {n: each for n, each in competitors.items() if n not in result.left_out}
    # Weights and gradients, and while the model is built its weights in float32.
    room = available_bytes(options.device) * 0.9 - 2 * result.parameter_bytes
    if room < max(4 * num_parameters - result.parameter_bytes, 0):
        result.left_out |= dict.fromkeys(able, "too little memory for the model")
        return result
    batches, misfits = batches_that_fit(
        able, parameter_bytes=result.parameter_bytes, available=room - options.evict_bytes
    )
    result.left_out |= dict.fromkeys(misfits, "too little memory for its state")
    threads = torch.get_num_threads()
    torch.set_num_threads(options.threads)
    try:
        on_progress("building")
        workload = Workload(build(), dtype=options.dtype, device=options.device)
        measured: dict[str, StepResult] = {}
        for batch in batches:
            # Those in every batch keep the figures of their first one.
            chosen = {n: able[n] for n in batch}
            measured = {**_measure_batch(workload, chosen, options, on_progress), **measured}
    finally:
        torch.set_num_threads(threads)
    result.optimizers = {n: measured[n] for n in able if n in measured}
    return result


def _why_not(competitor: Competitor, num_parameters: int, options: Options) -> str | None:
    if num_parameters > competitor.max_parameters:
        return "one step takes too long on a model of this size"
    if competitor.dtypes is not None and options.dtype not in competitor.dtypes:
        return f"not made for {options.dtype}"
    return competitor.why_not(options.device)


def _measure_batch(
    workload: Workload,
    competitors: Mapping[str, Competitor],
    options: Options,
    on_progress: Callable[[str], None],
) -> dict[str, StepResult]:
    built, steps, shares, temporaries = {}, {}, {}, {}
    for name, competitor in competitors.items():
        on_progress(f"warming up {name}")
        built[name] = competitor.build(workload.model)
        steps[name] = step = step_all(built[name])
        before = workload.sampled()
        step()
        shares[name] = workload.share_changed(before)
        workload.move_gradients_()
        step()
        temporaries[name] = temporary_bytes(step, device=options.device)
    buffer = torch.ones(max(options.evict_bytes // 4, 1), device=options.device)

    def probe() -> float:
        start = time.perf_counter()
        buffer.sum().item()
        return time.perf_counter() - start

    timings = interleave(
        steps,
        rounds=options.rounds,
        probe=probe,
        before=workload.move_gradients_,
        synchronize=torch.cuda.synchronize if options.device == "cuda" else None,
        settle_seconds=options.settle_seconds,
        on_sample=lambda num: on_progress(f"round {num + 1} of {options.rounds}"),
    )
    references = [r for r in REFERENCES if shares.get(r, 0) >= MIN_SHARE_CHANGED]
    held = {name: state_bytes(optimizers) for name, optimizers in built.items()}
    weights = sum(p.numel() * p.element_size() for p in workload.params)
    return {
        name: StepResult(
            **times_of(timings, name, references),
            state_bytes=held[name],
            temporary_bytes=temporaries[name],
            share_changed=shares[name],
            num_samples=len(timings.samples[name]),
            num_disturbed=timings.num_disturbed(name),
            moved_bytes=3 * weights + 2 * held[name],
        )
        for name in competitors
    }


def times_of(timings: Timings, name: str, references: Iterable[str]) -> dict[str, Any]:
    """Return the times of a `StepResult`: those of calm samples, and noisy ones where there are none."""
    seconds = timings.seconds(name)
    ratios = {to: spread(timings.ratios(name, to)) for to in references}
    noisy = None if seconds else spread([1000 * s for s in timings.seconds(name, noisy=True)])
    return {
        "milliseconds": spread([1000 * s for s in seconds]),
        "ratios": ratios,
        "noisy_milliseconds": noisy,
        "noisy_ratios": {
            to: spread(timings.ratios(name, to, noisy=True))
            for to, ratio in ratios.items()
            if ratio is None
        },
    }
