"""Evaluate a model with different weights, without changing it.

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

from nero.core.arguments import kind_of
from nero.core.sharding import is_sharded

LossFn: TypeAlias = Callable[[nn.Module], Tensor]
"""From a model to its loss on some batch, such as ``lambda model: mse_loss(model(x), y)``."""


def evaluate(model: nn.Module, function: LossFn, weights: Mapping[str, Tensor]) -> Tensor:
    """Compute ``function(model)`` as if the model's parameters were ``weights``.

    Parameters that ``weights`` does not name keep their values. Neither the model nor the state of random
    numbers is changed.
    """
    stand_ins = {f"model.{name}": buffer.clone() for name, buffer in model.named_buffers()}
    stand_ins |= {f"model.{name}": weight for name, weight in weights.items()}
    with kept_random_state(model):
        result: Tensor = functional_call(_Function(model, function), stand_ins, ())
    return result


def kept_random_state(model: nn.Module) -> AbstractContextManager[None]:
    """Return a context that restores the state of random numbers when it ends."""
    devices = {p.device.index for p in model.parameters() if p.device.type == "cuda"}
    return torch.random.fork_rng(sorted(devices))


def loss_and_gradients(
    model: nn.Module, loss_fn: LossFn, weights: Mapping[str, Tensor]
) -> tuple[float, dict[str, Tensor]]:
    """Compute the loss at ``weights``, and its gradient with respect to each of them.

    No ``.grad`` is written. A parameter that the loss does not depend on has a gradient of zero.
    """
    leaves = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
    with torch.enable_grad():
        loss = evaluate(model, loss_fn, leaves)
        if not isinstance(loss, Tensor):
            raise TypeError(f"the loss must be a tensor of one number, not {loss!r}")
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


def check_model(model: nn.Module) -> None:
    """Raise unless ``model`` is a module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {kind_of(model)}")


def check_names(model: nn.Module, named: Mapping[str, Tensor]) -> None:
    """Raise if the names or shapes of ``named`` are not those of parameters that one process holds."""
    check_model(model)
    params = dict(model.named_parameters())
    if not isinstance(named, Mapping):
        raise TypeError(f"update must map names to steps, but is {kind_of(named)}")
    for name, tensor in named.items():
        if name not in params:
            names = ", ".join(params)
            raise ValueError(f"the model has no parameter `{name}`; the names are: {names}")
        if not isinstance(tensor, Tensor):
            raise TypeError(f"the step of `{name}` must be a tensor, not {kind_of(tensor)}")
        if tensor.shape != params[name].shape:
            raise ValueError(
                f"the step of `{name}` must have its shape, {tuple(params[name].shape)}, not "
                f"{tuple(tensor.shape)}"
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
