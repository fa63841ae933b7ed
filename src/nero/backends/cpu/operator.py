"""The CPU kernel as one opaque operator, so that `torch.compile` can keep it in its graph.

Outside a compiler nobody calls it: an operator with hundreds of arguments costs half a millisecond to call.
Options travel as lists of numbers, which are constants of the graph; the learning rate is a tensor, so
that a schedule compiles nothing anew.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nero.backends.cpu.plan import CpuBackend
from nero.core.neurons import Layout
from nero.core.spec import COLUMNS, STATE, Hyper
from nero.core.update import Places, Update

_WRITTEN = [key for key, spec in STATE.items() if spec.is_written]
_INTEGERS = [name for name, kind in COLUMNS.items() if kind is int]
_NUMBERS = [name for name, kind in COLUMNS.items() if kind is float]


def step_(updates: Sequence[Update]) -> None:
    """Do what `CpuBackend.step_` does, while a compiler looks on."""
    integers: list[int] = []
    numbers: list[float] = []
    written: list[Tensor] = []
    read: list[Tensor] = []
    for update in updates:
        columns = update.hyper.encode()
        dims = update.neurons.fan_in_dims
        integers += [columns[name] for name in _INTEGERS]
        integers += [
            update.position,
            len(dims),
            *dims,
            *(int(key in update.state) for key in STATE),
            *_packed(update),
        ]
        numbers += [columns[name] for name in _NUMBERS]
        for key in STATE:
            if key in update.state:
                (written if key in _WRITTEN else read).append(update.state[key])
    weights, grads = [u.weight for u in updates], [u.grad for u in updates]
    _cpu_step(weights, grads, written, read, [_lr(u) for u in updates], integers, numbers)


@torch.library.custom_op("nero::cpu_step", mutates_args=("weights", "written"), device_types="cpu")
def _cpu_step(
    weights: list[Tensor],
    grads: list[Tensor],
    written: list[Tensor],
    read: list[Tensor],
    rates: list[Tensor],
    integers: list[int],
    numbers: list[float],
) -> None:
    """Read back what `step_` wrote, and step."""
    ints, floats, states = iter(integers), iter(numbers), (iter(written), iter(read))
    CpuBackend().step_(
        [
            _update(weight, grad, lr, ints, floats, *states)
            for weight, grad, lr in zip(weights, grads, rates, strict=True)
        ]
    )


@_cpu_step.register_fake
def _(*args: object) -> None:
    """Change nothing: what it mutates is in its schema."""


def _update(
    weight: Tensor,
    grad: Tensor,
    lr: Tensor,
    ints: Iterator[int],
    floats: Iterator[float],
    written: Iterator[Tensor],
    read: Iterator[Tensor],
) -> Update:
    columns: dict[str, float] = {name: next(ints) for name in _INTEGERS}
    position, num_dims = next(ints), next(ints)
    dims = [next(ints) for _ in range(num_dims)]
    keys = [key for key in STATE if next(ints)]
    places = None
    if next(ints):
        places = Places(next(ints), tuple(next(ints) for _ in range(weight.ndim)))
    columns |= {name: next(floats) for name in _NUMBERS}
    neuron_dims = tuple(d for d in range(weight.ndim) if d not in dims)
    layout = Layout("neuron", neuron_dims) if dims else Layout("other")
    return Update(
        weight=weight,
        grad=grad,
        state={key: next(written if key in _WRITTEN else read) for key in keys},
        neurons=layout.at(weight.shape),
        hyper=Hyper.decode(columns),
        lr=lr,
        position=position,
        places=places,
    )


def _packed(update: Update) -> list[int]:
    """Return whether it has places, and those."""
    return [0] if update.places is None else [1, update.places.start, *update.places.strides]


def _lr(update: Update) -> Tensor:
    lr = update.lr
    return lr if isinstance(lr, Tensor) else torch.full((), lr, dtype=torch.float64)
