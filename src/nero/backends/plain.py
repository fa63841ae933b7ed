"""The reference backend: readable torch operations, any device, dtype and memory format.

Every faster backend is held to this one by tests, and this one to a float64 loop over neurons. Large
tensors are read and written in blocks of whole neurons, so that what one operation leaves is in cache for
the next, and in buffers that are made once, because fresh memory costs more than what is done in it.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nero.backends.task import NeroTask
from nero.functional import (
    NeuronSums,
    Turn,
    apply_turn,
    neuron_sums,
    sum_dtype,
    turn_elements,
    turn_neurons,
    uniform_noise,
    working_dtype,
)

_BLOCK = 1 << 17  # weights of a block


def step_(tasks: Sequence[NeroTask]) -> None:
    """Update, in place, the weights and state of every task; gradients are only read."""
    for task in tasks:
        finish_(task, turn_of(task, sums_of(task)))


def finish_(task: NeroTask, turn: Turn) -> None:
    """Write the new rows and state of a task."""
    _apply_(task, turn)
    task.avg_norm.copy_(turn.avg_norm)
    # A step at lr = 0 leaves no trace, in no counter.
    is_active = task.options.lr != 0
    task.step.add_(is_active)
    if task.options.nonfinite != "propagate":
        task.num_skipped.add_((~turn.is_finite).sum() * is_active)


def sums_of(task: NeroTask) -> NeuronSums | None:
    """Compute the five sums of every neuron; ``None`` for a parameter without fan-in."""
    if task.scale is not None:
        return None
    if not _is_cut(task):
        return neuron_sums(task.weight, _effective_grad(task), fan_in_dims=task.fan_in_dims)
    shape = task.avg_norm.shape
    dtype, device = sum_dtype(task.weight), task.weight.device
    sums = NeuronSums(*torch.empty((5, *shape), dtype=dtype, device=device))
    buffers = torch.empty((3, _block_size(task)), dtype=dtype, device=device)
    for rows in _blocks(task):
        weight, grad = task.weight[rows], _effective_grad(task, rows)
        w, g, product = (b[: weight.numel()].view(weight.shape) for b in buffers)
        w.copy_(weight)
        g.copy_(grad)
        for out, x in ((sums.weight, w), (sums.grad, g)):
            torch.sum(x, task.fan_in_dims, keepdim=True, out=out[rows])
        for out, x, y in ((sums.grad_sq, g, g), (sums.weight_grad, w, g), (sums.weight_sq, w, w)):
            torch.mul(x, y, out=product)
            torch.sum(product, task.fan_in_dims, keepdim=True, out=out[rows])
    return sums


def turn_of(task: NeroTask, sums: NeuronSums | None, *, fan_in: int | None = None) -> Turn:
    """Turn the sums of a task into the coefficients of its new rows.

    Args:
        task: what is updated.
        sums: its sums, over the whole fan-in.
        fan_in: number of weights of a whole neuron, where the task holds only a part of it.
    """
    options = task.options
    shared = {
        "step": task.step + 1,
        "lr": options.lr,
        "beta": options.beta,
        "dtype": working_dtype(task.weight.dtype),
        "propagate_nonfinite": options.nonfinite == "propagate",
    }
    if sums is None:
        return turn_elements(_effective_grad(task), task.avg_norm, scale=task.scale, **shared)  # type: ignore[arg-type]
    return turn_neurons(
        sums,
        task.avg_norm,
        fan_in=fan_in or math.prod([task.weight.shape[d] for d in task.fan_in_dims]),
        constraint=task.constraint,
        radius=task.radius,
        zero_norm=options.bias_scale,
        **shared,  # type: ignore[arg-type]
    )


def _apply_(task: NeroTask, turn: Turn) -> None:
    """Write the new rows of a task."""
    if not _is_cut(task):
        noise = _noise(task, 0)
        task.weight.copy_(apply_turn(task.weight, _effective_grad(task), turn, noise=noise))
        return
    row = task.weight[0].numel()
    buffer = torch.empty(_block_size(task), dtype=turn.p.dtype, device=turn.p.device)
    for rows in _blocks(task):
        weight, grad = task.weight[rows], _effective_grad(task, rows)
        part = Turn(*(t[rows] for t in turn))
        noise = _noise(task._replace(weight=weight), rows.start * row)
        if noise is None and weight.dtype == grad.dtype == buffer.dtype:
            # apply_turn, without temporaries
            new = buffer[: weight.numel()].view(weight.shape)
            torch.addcmul(part.r, part.p, weight, out=new)
            torch.addcmul(new, part.q, grad, out=new)
            torch.where(part.moves, new, weight, out=weight)
        else:
            weight.copy_(apply_turn(weight, grad, part, noise=noise))


def _is_cut(task: NeroTask) -> bool:
    weight = task.weight
    return (
        weight.numel() > _BLOCK and 0 not in task.fan_in_dims and not torch.compiler.is_compiling()
    )


def _rows_each(task: NeroTask) -> int:
    return max(_BLOCK // task.weight[0].numel(), 1)


def _block_size(task: NeroTask) -> int:
    return _rows_each(task) * task.weight[0].numel()


def _blocks(task: NeroTask) -> Iterator[slice]:
    """Cut the first dim of a task, which is one of its neurons, into blocks."""
    num, each = task.weight.shape[0], _rows_each(task)
    return (slice(first, min(first + each, num)) for first in range(0, num, each))


def _noise(task: NeroTask, offset: int) -> Tensor | None:
    options = task.options
    if not options.stochastic_rounding:
        return None
    return uniform_noise(
        task.weight, seed=options.seed, stream=task.stream, step=task.step + 1, offset=offset
    )


def _effective_grad(task: NeroTask, rows: slice | None = None) -> Tensor:
    grad = task.grad if rows is None else task.grad[rows]
    grad = -grad if task.options.maximize else grad
    if task.options.gain_penalty:
        # the gradient of (penalty / 2) * (gain - 1)^2        (section 5.6)
        weight = task.weight if rows is None else task.weight[rows]
        dtype = working_dtype(weight.dtype)
        grad = grad.to(dtype) + task.options.gain_penalty * (weight.to(dtype) - 1)
    return grad
