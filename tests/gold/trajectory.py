"""Train with synthetic gradients that depend on nothing but the step and the parameter's place.

So a trajectory can stop at a checkpoint and go on, and rounding errors do not grow through a loss.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tests.gold.networks import uniform

FULL = range(50)
# For what is slow: these two include a step without some gradients and the step at lr = 0.
SHORT = range(15, 27)
SHORTEST = range(16, 22)
STEPS_WITHOUT_SOME_GRADIENTS = (5, 17, 30)
STEP_AT_LR_ZERO = 20


@dataclass(frozen=True)
class Gradients:
    """What the gradients of a trajectory are like.

    Every step zeroes one row per parameter, and three steps leave a third of the parameters without a
    gradient.
    """

    nonfinite_steps: tuple[int, ...] = ()
    """Steps at which one row of every parameter is NaN and one element of another inf."""
    is_contiguous: bool = False
    """Whether gradients are contiguous where weights are not."""

    def draw(self, model: nn.Module, step: int) -> dict[str, Tensor | None]:
        """Return the gradient of each parameter of an unsharded model, by name."""
        generator = torch.Generator().manual_seed(1000 + step)
        grads: dict[str, Tensor | None] = {}
        for place, (name, param) in enumerate(model.named_parameters()):
            grad = uniform(param.shape, generator)
            rows = grad.view(1) if grad.ndim == 0 else grad
            rows[step % len(rows)] = 0.0
            if step in self.nonfinite_steps:
                rows[(step + 1) % len(rows)] = torch.nan
                rows[(step + 2) % len(rows)].view(-1)[0] = torch.inf
            if step in STEPS_WITHOUT_SOME_GRADIENTS and (place + step) % 3 == 0:
                grads[name] = None
            elif self.is_contiguous:
                grads[name] = grad.to(param.dtype)
            else:
                grads[name] = torch.empty_like(param, requires_grad=False).copy_(grad)
        return grads


def base_rates(optimizer: Optimizer) -> list[float]:
    """Return the learning rate of each group before any schedule."""
    return [float(group["lr"]) for group in optimizer.param_groups]


def train(
    optimizer: Optimizer,
    step: Callable[[], Any],
    *,
    rates: list[float],
    steps: Iterable[int],
    set_gradients: Callable[[int], None],
) -> None:
    """Take ``steps`` on a linear schedule of ``rates``, with one step at zero."""
    for index in steps:
        factor = 0.0 if index == STEP_AT_LR_ZERO else 1 - index / 64
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * factor)
            else:
                group["lr"] = rate * factor
        set_gradients(index)
        step()


def assign_gradients(model: nn.Module, grads: dict[str, Tensor | None]) -> None:
    """Give every parameter its gradient."""
    for name, param in model.named_parameters():
        param.grad = grads[name]


def tensors_of(model: nn.Module, optimizer: Optimizer | None = None) -> dict[str, Tensor]:
    """Return copies of all weights and all state tensors, by parameter name and state key."""
    tensors = {}
    for name, param in model.named_parameters():
        tensors[f"{name} weight"] = _held(param)
        state = {} if optimizer is None else optimizer.state.get(param, {})
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"{name} {key}"] = _held(value)
    return tensors


def _held(tensor: Tensor) -> Tensor:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local.detach().clone(memory_format=torch.contiguous_format)
