"""The kernels as one opaque operator, so that `torch.compile` can keep them in its graph.

It is used only under `torch.compile`: calling an operator with hundreds of arguments takes half a
millisecond. Options are passed as lists of numbers, which are constants of the graph; the learning rate is
a tensor, so that a schedule does not recompile.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nero.backends import Backend, new_backends
from nero.backends.triton import TritonBackend
from nero.core.neurons import Layout
from nero.core.spec import COLUMNS, STATE, Hyper
from nero.core.update import Places, Update

_WRITTEN = [key for key, spec in STATE.items() if spec.is_written]
_INTEGERS = [name for name, kind in COLUMNS.items() if kind is int]
_NUMBERS = [name for name, kind in COLUMNS.items() if kind is float]


def step_(updates: Sequence[Update], backend: str) -> None:
    """Call the named backend's ``step_`` as an operator that `torch.compile` can trace."""
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
    _step(backend, weights, grads, written, read, [_lr(u) for u in updates], integers, numbers)


@torch.library.custom_op(
    "nero::step",
    mutates_args=("weights", "written"),
    tags=(torch.Tag.cudagraph_unsafe,),  # the table of addresses is built on the host
)
def _step(
    backend: str,
    weights: list[Tensor],
    grads: list[Tensor],
    written: list[Tensor],
    read: list[Tensor],
    rates: list[Tensor],
    integers: list[int],
    numbers: list[float],
) -> None:
    """Decode the arguments from `step_`, and step."""
    ints, floats, states = iter(integers), iter(numbers), (iter(written), iter(read))
    _backend(backend).step_(
        [
            _update(weight, grad, lr, ints, floats, *states)
            for weight, grad, lr in zip(weights, grads, rates, strict=True)
        ]
    )


@_step.register_fake
def _(*args: object) -> None:
    """Do nothing: the schema already declares the mutations."""


_KEPT = {name: b for name, b in new_backends().items() if isinstance(b, TritonBackend)}
"""Shared by all compiled steps of this process: tables hold addresses, and keep no weights alive.

Tables captured by a CUDA graph are kept until the process exits, because the graph may live that long.
"""


def _backend(name: str) -> Backend:
    """Return a backend for one step, since an operator cannot take an optimizer's own as an argument."""
    return _KEPT[name] if name in _KEPT else new_backends()[name]


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
    """Return an update's places as numbers, after a flag that says whether it has any."""
    return [0] if update.places is None else [1, update.places.start, *update.places.strides]


def _lr(update: Update) -> Tensor:
    lr = update.lr
    return lr if isinstance(lr, Tensor) else torch.full((), lr, dtype=torch.float64, device="cpu")
