"""One parameter at one step: the only form in which optimizers, backends and ranks pass it on."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from nero.core.neurons import Neurons


class Places(NamedTuple):
    """Where the elements of a shard lie in the whole parameter, so that noise is drawn by position."""

    start: int
    """The position of the first element."""
    strides: tuple[int, ...]
    """By how much the position grows along each dim."""


class Update(NamedTuple):
    """A parameter with its gradient, state and options at this step.

    Where parameters are sharded, tensors are what this rank holds; what `neurons` says is of the whole
    parameter. Tensors are viewed so that ``neurons.fan_in_dims`` applies. Backends write into ``weight``
    and ``state``, and never into ``grad``.
    """

    weight: Tensor
    grad: Tensor
    state: dict[str, Tensor]
    neurons: Neurons
    hyper: Any
    """The options as these neurons obey them: Nero's `Hyper`, or the param group of a baseline."""
    lr: float | Tensor
    position: int
    """Among all parameters of the optimizer: names it, and tells apart its noise."""
    backend: str = "plain"
    """Which backend takes the step: a name in `nero.backends`."""
    reduce_over: tuple[Any, ...] = ()
    """Pairs of a mesh and its dim over which sums are added up, because ranks share these neurons."""
    has_grad: bool = True
    """Whether this rank has a gradient; ``grad`` is zeros where only other ranks have one."""
    places: Places | None = None
    """Where its elements lie in the whole parameter, if it is sharded and its step draws noise."""
    whole: Tensor | None = None
    """The sharded parameter that this is a part of, if its direction takes all of it to find."""


def average_dtype(update: Update) -> torch.dtype | None:
    """Return the dtype of averages of the gradient, if there are any."""
    return update.state["exp_avg"].dtype if "exp_avg" in update.state else None


def rounds_average(update: Update) -> bool:
    """Tell whether a step rounds the average of the gradient, at random, to bfloat16."""
    return average_dtype(update) == torch.bfloat16


def rounds_weight(update: Update) -> bool:
    """Tell whether a step rounds weights at random: float32 and float64 ones never are."""
    return update.hyper.stochastic_rounding and update.weight.dtype.itemsize == 2
