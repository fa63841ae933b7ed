"""The CPU kernel as one opaque operator, so that `torch.compile` can keep it in its graph.

Outside a compiler nobody calls it: an operator with hundreds of arguments costs half a millisecond to call.
Options travel as lists of numbers, which are constants of the graph; the learning rate is a tensor, so
that a schedule compiles nothing anew.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nero.backends import cpu, plain
from nero.backends.task import NONFINITE, NeroOptions, NeroTask
from nero.functional import Sphere

_INITIAL = -1.0  # stands for Sphere(radius="initial"), as NaN does for a free radius


def step_(tasks: Sequence[NeroTask]) -> None:
    """Do what `nero.backends.cpu.step_` does, while a compiler looks on."""
    fused = [task for task in tasks if cpu.why_not(task.weight) is None]
    others = [task for task in tasks if cpu.why_not(task.weight) is not None]
    if fused:
        integers: list[int] = []
        numbers: list[float] = []
        for task in fused:
            integers += _integers(task)
            numbers += _numbers(task)
        _cpu_step(
            [task.weight for task in fused],
            [task.grad for task in fused],
            [task.avg_norm for task in fused],
            [task.step for task in fused],
            [task.num_skipped for task in fused],
            [_lr(task) for task in fused],
            [task.scale for task in fused if task.scale is not None],
            [task.radius for task in fused if task.radius is not None],
            integers,
            numbers,
        )
    if others:
        plain.step_(others)


@torch.library.custom_op(
    "nero::cpu_step", mutates_args=("weights", "averages", "steps", "skipped"), device_types="cpu"
)
def _cpu_step(
    weights: list[Tensor],
    grads: list[Tensor],
    averages: list[Tensor],
    steps: list[Tensor],
    skipped: list[Tensor],
    rates: list[Tensor],
    scales: list[Tensor],
    radii: list[Tensor],
    integers: list[int],
    numbers: list[float],
) -> None:
    ints, floats = iter(integers), iter(numbers)
    some_scale, some_radius = iter(scales), iter(radii)
    tensors = zip(weights, grads, averages, steps, skipped, strict=True)
    cpu.step_(
        [
            _task(five, lr, ints, floats, some_scale, some_radius)
            for five, lr in zip(tensors, rates, strict=True)
        ]
    )


@_cpu_step.register_fake
def _(*args: object) -> None:
    """Change nothing: what it mutates is in its schema."""


def _lr(task: NeroTask) -> Tensor:
    lr = task.options.lr
    return lr if isinstance(lr, Tensor) else torch.full((), lr, dtype=torch.float64)


def _numbers(task: NeroTask) -> list[float]:
    options, radius = task.options, task.constraint.radius
    number = math.nan if radius is None else _INITIAL if radius == "initial" else float(radius)
    return [options.beta, options.bias_scale, options.gain_penalty, number]


def _integers(task: NeroTask) -> list[int]:
    options = task.options
    return [
        int(task.constraint.centre),
        int(options.maximize),
        NONFINITE.index(options.nonfinite),
        int(options.stochastic_rounding),
        options.seed,
        task.stream,
        int(task.scale is not None),
        int(task.radius is not None),
        len(task.fan_in_dims),
        *task.fan_in_dims,
    ]


def _task(five: Any, lr: Tensor, ints: Any, floats: Any, scales: Any, radii: Any) -> NeroTask:
    """Read back what `_numbers` and `_integers` wrote."""
    beta, bias_scale, gain_penalty, radius = (next(floats) for _ in range(4))
    centre, maximize, nonfinite, stochastic, seed, stream = (next(ints) for _ in range(6))
    has_scale, has_radius, num_dims = (next(ints) for _ in range(3))
    constraint = Sphere(
        None if math.isnan(radius) else "initial" if radius == _INITIAL else radius, bool(centre)
    )
    options = NeroOptions(
        lr=lr,
        beta=beta,
        constraint=constraint,
        bias_scale=bias_scale,
        gain_penalty=gain_penalty,
        maximize=bool(maximize),
        nonfinite=NONFINITE[nonfinite],
        stochastic_rounding=bool(stochastic),
        seed=seed,
    )
    weight, grad, average, step, skipped = five
    return NeroTask(
        weight=weight,
        grad=grad,
        avg_norm=average,
        step=step,
        num_skipped=skipped,
        scale=next(scales) if has_scale else None,
        radius=next(radii) if has_radius else None,
        fan_in_dims=tuple(next(ints) for _ in range(num_dims)),
        constraint=constraint,
        options=options,
        stream=stream,
    )
