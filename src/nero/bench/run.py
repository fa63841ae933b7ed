"""Measures one model: builds it, lets its rivals sit together, and sums up what the clock said."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from nero.bench.memory import (
    available_bytes,
    last_cache_bytes,
    plan_sittings,
    temporary_bytes,
)
from nero.bench.rivals import REFERENCES, Rival, Stepper
from nero.bench.timing import Spread, Timings, interleave, spread
from nero.bench.workload import Workload

# A rival that changes fewer of the weights than this does not do the work.
MIN_SHARE_CHANGED = 0.5
_MAX_EVICTED_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Options:
    """What is the same for all rivals of a run."""

    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    threads: int = 1
    rounds: int = 15
    settle_seconds: float = 0.02
    evict_bytes: int = field(
        default_factory=lambda: min(last_cache_bytes() * 5 // 4, _MAX_EVICTED_BYTES)
    )


@dataclass(frozen=True)
class RivalResult:
    """One rival on one model; times in milliseconds, ratios within rounds."""

    milliseconds: Spread | None
    ratios: dict[str, Spread | None]
    state_bytes: int
    temporary_bytes: int
    share_changed: float
    num_samples: int
    num_disturbed: int

    @property
    def does_the_work(self) -> bool:
        """Whether it changed the weights that it should."""
        return self.share_changed >= MIN_SHARE_CHANGED


@dataclass
class ModelResult:
    """All rivals on one model."""

    model: str
    num_parameters: int
    parameter_bytes: int
    dtype: str
    device: str
    threads: int
    rivals: dict[str, RivalResult] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """Rivals that were not measured, and why."""


def measure_model(
    name: str,
    build: Callable[[], nn.Module],
    rivals: Mapping[str, Rival],
    options: Options,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
) -> ModelResult:
    """Time one step of every rival on one model, and weigh its state and temporaries.

    Sets torch's number of threads while it runs.

    Example:
        >>> from nero.bench import MODELS, RIVALS, Options, measure_model
        >>> quick = Options(rounds=2, settle_seconds=0, evict_bytes=2**16)
        >>> result = measure_model("mlp-tiny", MODELS["mlp-tiny"], RIVALS, quick)
        >>> result.rivals["adamw-fused"].state_bytes > result.parameter_bytes
        True
    """
    with torch.device("meta"):
        params = list(build().parameters())
    result = ModelResult(
        model=name,
        num_parameters=sum(p.numel() for p in params),
        parameter_bytes=sum(p.numel() for p in params) * options.dtype.itemsize,
        dtype=str(options.dtype).removeprefix("torch."),
        device=options.device,
        threads=options.threads,
    )
    able, result.left_out = _able(rivals, result.num_parameters, options)
    # Weights and gradients, and while the model is built its weights in float32.
    room = available_bytes(options.device) * 0.9 - 2 * result.parameter_bytes
    if room < max(4 * result.num_parameters - result.parameter_bytes, 0):
        result.left_out |= dict.fromkeys(able, "too little memory for the model")
        return result
    sittings, misfits = plan_sittings(
        able, parameter_bytes=result.parameter_bytes, available=room - options.evict_bytes
    )
    result.left_out |= dict.fromkeys(misfits, "too little memory for its state")
    threads = torch.get_num_threads()
    torch.set_num_threads(options.threads)
    try:
        on_progress("building")
        workload = Workload(build(), dtype=options.dtype, device=options.device)
        for sitting in sittings:
            # A regular's own figures are those of its first sitting.
            new = _sit(workload, {n: able[n] for n in sitting}, options, on_progress)
            result.rivals = {**new, **result.rivals}
    finally:
        torch.set_num_threads(threads)
    result.rivals = {n: result.rivals[n] for n in able if n in result.rivals}
    return result


def _able(
    rivals: Mapping[str, Rival], num_parameters: int, options: Options
) -> tuple[dict[str, Rival], dict[str, str]]:
    able, left_out = {}, {}
    for name, rival in rivals.items():
        if num_parameters > rival.max_parameters:
            left_out[name] = "one step takes too long on a model of this size"
        elif rival.dtypes is not None and options.dtype not in rival.dtypes:
            left_out[name] = f"not made for {options.dtype}"
        elif why := rival.why_not(options.device):
            left_out[name] = why
        else:
            able[name] = rival
    return able, left_out


def _sit(
    workload: Workload,
    rivals: Mapping[str, Rival],
    options: Options,
    on_progress: Callable[[str], None],
) -> dict[str, RivalResult]:
    steppers: dict[str, Stepper] = {}
    shares: dict[str, float] = {}
    temporaries: dict[str, int] = {}
    for name, rival in rivals.items():
        on_progress(f"warming up {name}")
        stepper = steppers[name] = rival.build(workload.model)
        before = workload.sampled()
        stepper.step()
        shares[name] = workload.share_changed(before)
        workload.move_gradients_()
        stepper.step()
        temporaries[name] = temporary_bytes(stepper.step, device=options.device)
    buffer = torch.ones(max(options.evict_bytes // 4, 1), device=options.device)
    synchronize = torch.cuda.synchronize if options.device == "cuda" else None

    def probe() -> float:
        start = time.perf_counter()
        buffer.sum().item()
        return time.perf_counter() - start

    timings = interleave(
        {name: stepper.step for name, stepper in steppers.items()},
        rounds=options.rounds,
        probe=probe,
        before=workload.move_gradients_,
        synchronize=synchronize,
        settle_seconds=options.settle_seconds,
        on_sample=lambda num: on_progress(f"round {num + 1} of {options.rounds}"),
    )
    return {
        name: RivalResult(
            milliseconds=_milliseconds(timings, name),
            ratios={
                to: spread(timings.ratios(name, to))
                for to in REFERENCES
                if to in steppers and shares[to] >= MIN_SHARE_CHANGED
            },
            state_bytes=stepper.state_bytes(),
            temporary_bytes=temporaries[name],
            share_changed=shares[name],
            num_samples=len(timings.samples[name]),
            num_disturbed=timings.num_disturbed(name),
        )
        for name, stepper in steppers.items()
    }


def _milliseconds(timings: Timings, name: str) -> Spread | None:
    return spread([1000 * s for s in timings.seconds(name)])
