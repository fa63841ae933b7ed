"""Evaluate a model at other weights than its own, and leave it as it is.

The other weights stand in for the model's only while the function runs, so no bit of the model has
to be restored afterwards. Buffers are copies, so that batch norm's running averages stay too, and
every evaluation draws the same random numbers, so that two gradients differ by the weights and not
by dropout.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nero.core.sharding import is_sharded

LossFn: TypeAlias = Callable[[nn.Module], Tensor]
"""From a model to its loss on some batch, such as ``lambda model: mse_loss(model(x), y)``."""


def evaluate(model: nn.Module, function: LossFn, weights: Mapping[str, Tensor]) -> Tensor:
    """Compute ``function(model)`` as if the model's parameters were ``weights``.

    Args:
        model: the model; neither it nor the state of random numbers is changed.
        function: what to compute.
        weights: tensors by parameter name; what is not named keeps its value.

    Example:
        >>> from nero.theory.evaluation import evaluate
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> other = {"weight": torch.tensor([[3.0, 4.0]])}
        >>> evaluate(layer, lambda model: model(torch.ones(2)).sum(), other)
        tensor(7.)
    """
    stand_ins = {f"model.{name}": buffer.clone() for name, buffer in model.named_buffers()}
    stand_ins |= {f"model.{name}": weight for name, weight in weights.items()}
    with kept_random_state(model):
        result: Tensor = functional_call(_Function(model, function), stand_ins, ())
    return result


def kept_random_state(model: nn.Module) -> AbstractContextManager[None]:
    """Return a context that restores the state of random numbers when it ends.

    Example:
        >>> from nero.theory.evaluation import kept_random_state
        >>> with kept_random_state(nn.Linear(1, 1)):
        ...     first = torch.rand(1)
        >>> bool(torch.rand(1) == first)
        True
    """
    devices = {p.device.index for p in model.parameters() if p.device.type == "cuda"}
    return torch.random.fork_rng(sorted(devices))


def loss_and_gradients(
    model: nn.Module, loss_fn: LossFn, weights: Mapping[str, Tensor]
) -> tuple[float, dict[str, Tensor]]:
    """Compute the loss at ``weights``, and its gradient with respect to each of them.

    No ``.grad`` is written. A parameter that the loss does not depend on has a gradient of zero.

    Example:
        >>> from nero.theory.evaluation import loss_and_gradients
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> other = {"weight": torch.ones(1, 1)}
        >>> loss_and_gradients(layer, lambda model: model.weight.square().sum(), other)
        (1.0, {'weight': tensor([[2.]])})
    """
    leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
    with torch.enable_grad():
        loss = evaluate(model, loss_fn, leaves)
        if loss.numel() != 1:
            raise ValueError(f"the loss must be one number, but has the shape {tuple(loss.shape)}")
        if not loss.requires_grad:
            raise ValueError(
                "the loss does not depend on the model's weights: compute it from the model that "
                "the function is given"
            )
        grads = torch.autograd.grad(loss, [*leaves.values()], allow_unused=True)
    found = zip(leaves.items(), grads, strict=True)
    return loss.item(), {
        name: torch.zeros_like(leaf) if grad is None else grad for (name, leaf), grad in found
    }


def check_names(model: nn.Module, named: Mapping[str, Tensor]) -> None:
    """Raise if the names or shapes of ``named`` are not those of parameters that one process holds.

    Example:
        >>> from nero.theory.evaluation import check_names
        >>> check_names(nn.Linear(2, 1), {"wieght": torch.zeros(1, 2)})
        Traceback (most recent call last):
        ValueError: the model has no parameter `wieght`; the names are: weight, bias
    """
    params = dict(model.named_parameters())
    for name, tensor in named.items():
        if name not in params:
            names = ", ".join(params)
            raise ValueError(f"the model has no parameter `{name}`; the names are: {names}")
        if tensor.shape != params[name].shape:
            raise ValueError(
                f"`{name}` has the shape {tuple(params[name].shape)}, but was given one of the "
                f"shape {tuple(tensor.shape)}"
            )
        if is_sharded(params[name]):
            raise TypeError(f"`{name}` is sharded: gather the model in one process first")


class _Function(nn.Module):
    """A function of a model, as a module around it: the form that ``functional_call`` takes."""

    def __init__(self, model: nn.Module, function: LossFn) -> None:
        super().__init__()
        self.model = model
        self.function = function

    def forward(self) -> Tensor:
        return self.function(self.model)
