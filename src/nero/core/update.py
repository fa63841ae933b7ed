"""One parameter's update at one step, as passed between optimizers, backends and ranks."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from nero.core.neurons import Neurons


class Places(NamedTuple):
    """Offset and strides of this rank's shard in the full parameter, to draw noise by position."""

    start: int
    """Position of the first element."""
    strides: tuple[int, ...]
    """Increment of the position along each dim."""


class Update(NamedTuple):
    """A parameter with its gradient, state and options at this step.

    If the parameter is sharded, the tensors are this rank's shards, and ``neurons`` describes the full
    parameter. Tensors are viewed so that ``neurons.fan_in_dims`` applies. Backends write to ``weight`` and
    ``state``, and never to ``grad``.
    """

    weight: Tensor
    grad: Tensor
    state: dict[str, Tensor]
    neurons: Neurons
    hyper: Any
    """The options that apply to these neurons: Nero's `Hyper`, or the param group of a baseline."""
    lr: float | Tensor
    position: int
    """Position among all of the optimizer's parameters; it selects the noise stream."""
    backend: str = "plain"
    """The backend of the step: a name in `nero.backends`."""
    reduce_over: tuple[Any, ...] = ()
    """Pairs of a mesh and a mesh dim over which to reduce sums, because the fan-in is sharded."""
    has_grad: bool = True
    """Whether this rank has a gradient; ``grad`` is zeros if only other ranks have one."""
    places: Places | None = None
    """Position of its elements in the full parameter, if it is sharded and its step draws noise."""
    whole: Tensor | None = None
    """The full sharded parameter, if its direction depends on all of it."""
    flat: Any = None
    """The holder, if ``weight`` is a range of a flat buffer; ``hyper`` is then that of its group."""


def average_dtype(update: Update) -> torch.dtype | None:
    """Return the dtype of the momentum buffer, if there is one."""
    return update.state["exp_avg"].dtype if "exp_avg" in update.state else None


def rounds_average(update: Update) -> bool:
    """Whether a step rounds the momentum buffer stochastically to bfloat16."""
    return average_dtype(update) == torch.bfloat16


def rounds_weight(update: Update) -> bool:
    """Whether a step rounds weights stochastically, which it never does in float32 and float64."""
    return update.hyper.stochastic_rounding and update.weight.dtype.itemsize == 2
