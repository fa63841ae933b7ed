"""The reference backend: readable torch operations, any device, dtype and memory format.

Every faster backend is held to this one by tests, and this one to a float64 loop over neurons.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nero.backends.task import NeroTask
from nero.functional import Updated, nero_elements, nero_neurons, uniform_noise, working_dtype
from nero.functional.sharding import is_sharded, whole

# Weights worked on at once, so that what one operation leaves is in cache for the next, and temporary
# memory is that of a block and not of a tensor.
_BLOCK = 1 << 17


def step_(tasks: Sequence[NeroTask]) -> None:
    """Update, in place, the weights and state of every task; gradients are only read."""
    for task in tasks:
        # A step at lr = 0 leaves no trace, in no counter.
        is_active = task.options.lr != 0
        num_skipped = torch.zeros_like(task.num_skipped)
        for block, offset in _blocks(task):
            new = _update(block, offset)
            block.weight.copy_(new.weight)
            block.avg_norm.copy_(new.avg_norm)
            num_skipped += whole((~new.is_finite).sum())
        task.step.add_(is_active)
        if task.options.nonfinite != "propagate":
            task.num_skipped.add_(num_skipped * is_active)


def _blocks(task: NeroTask) -> Iterator[tuple[NeroTask, int]]:
    """Cut a task into pieces of whole neurons, each with the position of its first weight."""
    weight = task.weight
    size = weight.numel()
    is_cut = size > _BLOCK and 0 not in task.fan_in_dims and not is_sharded(weight)
    if not is_cut or torch.compiler.is_compiling():
        yield task, 0
        return
    row = size // weight.shape[0]
    each = max(_BLOCK // row, 1)
    for first in range(0, weight.shape[0], each):
        piece = slice(first, first + each)
        block = task._replace(
            weight=weight[piece],
            grad=task.grad[piece],
            avg_norm=task.avg_norm[piece],
            radius=None if task.radius is None else task.radius[piece],
        )
        yield block, first * row


def _update(task: NeroTask, offset: int) -> Updated:
    options = task.options
    grad = _effective_grad(task)
    shared = {
        "step": task.step + 1,
        "lr": options.lr,
        "beta": options.beta,
        "propagate_nonfinite": options.nonfinite == "propagate",
        "noise": _noise(task, offset),
    }
    if task.scale is not None:
        return nero_elements(task.weight, grad, task.avg_norm, scale=task.scale, **shared)  # type: ignore[arg-type]
    return nero_neurons(
        task.weight,
        grad,
        task.avg_norm,
        fan_in_dims=task.fan_in_dims,
        constraint=task.constraint,
        radius=task.radius,
        zero_norm=options.bias_scale,
        **shared,  # type: ignore[arg-type]
    )


def _noise(task: NeroTask, offset: int) -> Tensor | None:
    options = task.options
    if not options.stochastic_rounding:
        return None
    return uniform_noise(
        task.weight, seed=options.seed, stream=task.stream, step=task.step + 1, offset=offset
    )


def _effective_grad(task: NeroTask) -> Tensor:
    grad = -task.grad if task.options.maximize else task.grad
    if task.options.gain_penalty:
        # the gradient of (penalty / 2) * (gain - 1)^2        (section 5.6)
        dtype = working_dtype(task.weight.dtype)
        grad = grad.to(dtype) + task.options.gain_penalty * (task.weight.to(dtype) - 1)
    return grad
