"""A problem on which every option matters, and the trajectory that each backend takes over it.

`CHANGES` has one entry for each option: what it changes to in the middle of training, and what the training
needs so that the change can be seen. `COMBINED` changes several at once, for backends that take seconds per
trajectory: each option still makes a difference there.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from unittest import mock

import torch
from torch import Tensor, nn

from nero import Nero
from nero.core.sharding import full_tensor

NUM_STEPS, CHANGED_AT = 5, 2


@dataclass(frozen=True)
class Change:
    """An option's new value, from step `CHANGED_AT` on; of several, a dict."""

    value: Any
    before: dict[str, Any] = field(default_factory=dict)
    """Options of the whole training, because of which the change matters."""
    dtype: torch.dtype = torch.float32
    grads: Callable[[int, list[Tensor]], None] = lambda step, grads: None
    """Changes the gradients of a step, so that the change matters."""
    also: dict[str, Any] = field(default_factory=dict)
    """Other options that change at the same step, with this one and without."""


def _zero_row_wakes_up(step: int, grads: list[Tensor]) -> None:
    if step < CHANGED_AT:
        grads[0][2] = 0


def _nan_row(step: int, grads: list[Tensor]) -> None:
    if step >= CHANGED_AT:
        for grad in grads:
            grad[0] = torch.nan


CHANGES = {
    "lr": Change(0.1),
    "beta": Change(0.5),
    "norm": Change("peak", {"beta": 0.5, "lr": 0.1}),
    "momentum": Change(0.5, {"momentum": 0.9}),
    "momentum_dtype": Change("bfloat16", {"momentum": 0.9, "lr": 0.4}),
    "direction": Change("polar"),
    "constraint": Change("norm"),
    "bias_scale": Change(0.7, {"constraint": "none"}, grads=_zero_row_wakes_up),
    "gain_penalty": Change(3.0),
    "maximize": Change(True),
    "nonfinite": Change("propagate", grads=_nan_row),
    # Triton's interpreter truncates where a GPU rounds to nearest: until the change, nothing moves.
    "stochastic_rounding": Change(True, {"lr": 0.0}, torch.bfloat16, also={"lr": 0.01}),
    "seed": Change(7, {"stochastic_rounding": True}, torch.bfloat16),
}


def _wakes_up_and_nan(step: int, grads: list[Tensor]) -> None:
    _zero_row_wakes_up(step, grads)
    _nan_row(step, grads)


COMBINED = {
    "combined rule": Change(
        {"lr": 0.1, "beta": 0.5, "momentum": 0.5, "gain_penalty": 3.0, "maximize": True}
        | {"constraint": "norm"},
        {"momentum": 0.9},
    ),
    "combined state": Change(
        {"norm": "peak", "momentum_dtype": "bfloat16", "bias_scale": 0.7, "nonfinite": "propagate"},
        {"beta": 0.95, "momentum": 0.9, "lr": 0.4, "constraint": "none"},
        grads=_wakes_up_and_nan,
    ),
    # A polar direction is found before the kernel is called, which then does without momentum.
    "combined noise": Change(
        {"stochastic_rounding": True, "seed": 7, "direction": "polar"},
        {"lr": 0.0},
        torch.bfloat16,
        also={"lr": 0.01},
    ),
}


def change_of(name: str) -> Change:
    return {**CHANGES, **COMBINED}[name]


def changed_options(name: str) -> dict[str, Any]:
    """Return the new values, of one option or of several."""
    value = change_of(name).value
    return dict(value) if name in COMBINED else {name: value}


Place: TypeAlias = Callable[[Tensor, int], Tensor]
SHAPES = [(5, 12), (3, 40), (6,), (4, 6), (4, 3, 2), (8,)]
FAN_IN_DIMS = [1, 1, 0, 0, 2, 0]
"""A dim of each that can be cut so that ranks share its neurons; of gains and biases, the only one."""


def _alone(tensor: Tensor, dim: int) -> Tensor:
    return tensor


def problem(dtype: torch.dtype, place: Place = _alone) -> list[dict[str, Any]]:
    """Return param groups of every kind: rows, gains, columns, groups and biases."""
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]
    start[0][2] = 0  # without direction, until it has a gradient
    placed = [place(tensor, dim) for tensor, dim in zip(start, FAN_IN_DIMS, strict=True)]
    rows, more, gain, columns, grouped, bias = map(nn.Parameter, placed)
    return [
        {"params": [rows, more], "role": "neuron"},
        {"params": [gain], "role": "gain"},
        {"params": [columns], "role": "neuron", "neuron_dims": (1,)},
        {"params": [grouped], "role": "neuron", "neuron_dims": (1,), "num_groups": 2},
        {"params": [bias], "role": "bias"},
    ]


def params_of(groups: list[dict[str, Any]]) -> list[nn.Parameter]:
    return [param for group in groups for param in group["params"]]


def set_grads(optimizer: Nero, change: Change, step: int, place: Place = _alone) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    grads = [torch.randn(shape, generator=generator).to(change.dtype) for shape in SHAPES]
    change.grads(step, grads)
    for param, grad, dim in zip(
        params_of(optimizer.param_groups), grads, FAN_IN_DIMS, strict=False
    ):
        param.grad = place(grad, dim)


def trajectory(
    name: str,
    *,
    fused: bool | None,
    is_changed: bool = True,
    step_of: Callable[[Nero], Callable[[], Any]] = lambda optimizer: optimizer.step,
    num_groups: int | None = None,
    place: Place = _alone,
) -> list[list[Tensor]]:
    """Train, change the option in the middle, and return the parameters after every step."""
    change = change_of(name)
    groups = problem(change.dtype, place)[:num_groups]
    optimizer = Nero(groups, **{"lr": 0.01, **change.before, "fused": fused})
    step_, taken = step_of(optimizer), []
    for step in range(NUM_STEPS):
        if step == CHANGED_AT:
            for group in optimizer.param_groups:
                group.update(change.also | (changed_options(name) if is_changed else {}))
        set_grads(optimizer, change, step, place)
        step_()
        taken.append([_whole(param) for param in params_of(optimizer.param_groups)])
    return taken


def _whole(param: Tensor) -> Tensor:
    return full_tensor(param.detach()).clone()


def expected_trajectory(name: str, without: str | None = None) -> list[list[Tensor]]:
    """Return what the plain backend does with an optimizer that is built with the changed option.

    It is new at the change, so it cannot have kept anything from before. Of several options, the one named
    by ``without`` does not change.
    """
    change = change_of(name)
    changed = change.also | {k: v for k, v in changed_options(name).items() if k != without}
    options = {"lr": 0.01, **change.before, "fused": False}
    optimizer, taken = Nero(problem(change.dtype), **options), []
    for step in range(NUM_STEPS):
        if step == CHANGED_AT:
            optimizer = _rebuilt(optimizer, options, changed, change)
        set_grads(optimizer, change, step)
        optimizer.step()
        taken.append([_whole(param) for param in params_of(optimizer.param_groups)])
    return taken


def _rebuilt(
    optimizer: Nero, options: dict[str, Any], changed: dict[str, Any], change: Change
) -> Nero:
    weights = [param.detach().clone() for param in params_of(optimizer.param_groups)]
    saved = copy.deepcopy(optimizer.state_dict())
    rebuilt = Nero(problem(change.dtype), **{**options, **changed})
    for group in saved["param_groups"]:
        group.update(changed)
    rebuilt.load_state_dict(saved)
    with torch.no_grad():  # construction has projected them
        for param, weight in zip(params_of(rebuilt.param_groups), weights, strict=True):
            param.copy_(weight)
    return rebuilt


def distance(ours: list[list[Tensor]], theirs: list[list[Tensor]]) -> float:
    """Return how far trajectories are apart, at most; for half precision, the share of other bits.

    Where one has fewer parameters, the first ones are compared.

    With equal noise, half-precision weights differ where noise decides by less than the error of a sum;
    with other noise, most of them differ.
    """
    worst = 0.0
    for mine, other in zip(ours, theirs, strict=True):
        for p, q in zip(mine, other, strict=False):
            if p.dtype == torch.float32:
                unequal = p.isnan() != q.isnan()
                gap = (p - q).abs().nan_to_num(0.0).masked_fill(unequal, torch.inf)
                worst = max(worst, gap.max().item())
        if mine[0].dtype != torch.float32:
            unequal = [(p != q).flatten() for p, q in zip(mine, other, strict=False)]
            worst = max(worst, torch.cat(unequal).float().mean().item())
    return worst


TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 0.02}
"""A few roundings of float32 per step, over 5 steps; or the share of weights whose noise nearly tied."""
VISIBLE = {torch.float32: 1e-3, torch.bfloat16: 0.1}
"""What a change does at least."""


@contextmanager
def triton_steps(optimizer: Nero) -> Iterator[None]:
    """Let the Triton backend take the steps that others would."""
    from nero.backends import triton

    reason = triton.why_not_device(torch.device("cpu"))
    assert reason is None, reason
    kernel = triton.TritonBackend()
    with mock.patch.dict(optimizer.rule._backends, plain=kernel, cpu=kernel):
        yield
