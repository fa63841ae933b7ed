"""The reference backend: readable torch operations, any device, dtype and memory format.

Every faster backend is held to this one by tests, and this one to a float64 loop over neurons. Large
tensors are read and written in blocks of whole neurons, so that what one operation leaves is in cache for
the next, and in buffers that are made once, because fresh memory costs more than what is done in it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nero.core.gram import Gram, gram_keys
from nero.core.gram import gram as gram_of_rows
from nero.core.precision import sum_dtype, working_dtype
from nero.core.rounding import uniform_noise
from nero.core.rule import (
    Affine,
    Turn,
    apply_turn,
    average_grad,
    rows_of,
    turn_rows,
)
from nero.core.update import Update

_BLOCK = 1 << 17  # weights of a block


def step_(updates: Sequence[Update]) -> None:
    """Update, in place, the weights and state of every parameter; gradients are only read."""
    for update in updates:
        products = None if update.neurons.is_elementwise else gram_of(update)
        turn = turn_of(update, products)
        write_rows_(update, turn)
        write_state_(update, turn)


def gram(updates: Sequence[Update]) -> list[Gram]:
    """Compute the Gram matrix of what this rank holds of every neuron."""
    return [gram_of(update) for update in updates]


def apply_(updates: Sequence[Update], turns: Sequence[Turn]) -> None:
    """Write new rows and state."""
    for update, turn in zip(updates, turns, strict=True):
        write_rows_(update, turn)
        write_state_(update, turn)


def gram_of(update: Update) -> Gram:
    """Compute the Gram matrix of every neuron."""
    dims, blocks = update.neurons.fan_in_dims, _blocks(update)
    rows = _rows(update, blocks[0])
    if blocks[0] is None:
        return gram_of_rows(rows, fan_in_dims=dims)
    letters, size = "".join(rows), rows["w"].numel()
    keys, dtype, device = gram_keys(letters), sum_dtype(update.weight), update.weight.device
    shape = update.state["exp_avg_norm"].shape
    sums = torch.empty((len(keys), *shape), dtype=dtype, device=device)
    buffers = torch.empty((len(letters) + 1, size), dtype=dtype, device=device)
    for part in blocks:
        rows = _rows(update, part)
        weight = rows["w"]
        product, *copies = (buffer[: weight.numel()].view(weight.shape) for buffer in buffers)
        exact = {
            letter: copy.copy_(rows[letter]) for letter, copy in zip(rows, copies, strict=True)
        }
        for out, (a, b) in zip(sums, map(tuple, keys), strict=True):
            x = exact[a] if b == "1" else torch.mul(exact[a], exact[b], out=product)
            torch.sum(x, dims, keepdim=True, out=out[part])
    return Gram(sums, letters)


def turn_of(update: Update, products: Gram | None) -> Turn:
    """Turn the products of a parameter's rows into the coefficients of its new ones."""
    return turn_rows(
        products,
        _rows(update, None) if products is None else {"w": update.weight},
        update.state,
        neurons=update.neurons,
        step=update.state["step"] + 1,
        lr=update.lr,
        hyper=update.hyper,
    )


def write_rows_(update: Update, turn: Turn) -> None:
    """Write weights, and the average of the gradient."""
    dtype, blocks = working_dtype(update.weight.dtype), _blocks(update)
    buffer = None
    for part in blocks:
        rows, now = _rows(update, part), _cut(turn, part)
        weight, noise = rows["w"], _noise(update, rows["w"], part)
        if "exp_avg" in update.state:  # before the weights change
            exp_avg, grad = _block(update.state["exp_avg"], part), _block(update.grad, part)
            exp_avg.copy_(average_grad(weight, grad, exp_avg, now.is_written, update.hyper))
        if part is None or noise is not None or {row.dtype for row in rows.values()} != {dtype}:
            weight.copy_(apply_turn(rows, now, noise=noise))
        else:  # apply_turn, without temporaries
            if buffer is None:
                buffer = torch.empty(weight.numel(), dtype=dtype, device=weight.device)
            new, start = buffer[: weight.numel()].view(weight.shape), now.weight.shift
            for coefficient, row in zip(now.weight.coefficients, rows.values(), strict=True):
                start = torch.addcmul(start, coefficient, row, out=new)
            torch.where(now.moves, new, weight, out=weight)


def write_state_(update: Update, turn: Turn) -> None:
    """Write what has one number per neuron, and count the step."""
    for key, value in turn.state.items():
        update.state[key].copy_(value)
    # A step at lr = 0 leaves no trace, in no counter.
    is_active = update.lr != 0
    update.state["step"].add_(is_active)
    if update.hyper.nonfinite != "propagate":
        update.state["num_skipped"].add_((~turn.is_finite).sum() * is_active)


def _blocks(update: Update) -> list[slice | None]:
    """Cut dim 0, if it indexes neurons and there is enough of it, into blocks; ``[None]`` if not."""
    weight = update.weight
    if weight.numel() <= _BLOCK or 0 in update.neurons.fan_in_dims or torch.compiler.is_compiling():
        return [None]
    num, each = weight.shape[0], max(_BLOCK // weight[0].numel(), 1)
    return [slice(first, min(first + each, num)) for first in range(0, num, each)]


def _block(tensor: Tensor, part: slice | None) -> Tensor:
    return tensor if part is None else tensor[part]


def _rows(update: Update, part: slice | None) -> dict[str, Tensor]:
    return rows_of(update.weight, update.grad, update.state, update.hyper, part)


def _cut(turn: Turn, part: slice | None) -> Turn:
    if part is None:
        return turn

    def cut(affine: Affine) -> Affine:
        return Affine(tuple(c[part] for c in affine.coefficients), affine.shift[part])

    return turn._replace(
        weight=cut(turn.weight), moves=turn.moves[part], is_written=turn.is_written[part]
    )


def _noise(update: Update, weight: Tensor, part: slice | None) -> Tensor | None:
    if not update.hyper.stochastic_rounding:
        return None
    start, strides = update.places or (0, None)
    if part is not None:
        start += part.start * (update.weight[0].numel() if strides is None else strides[0])
    return uniform_noise(
        weight,
        seed=update.hyper.seed,
        stream=update.position,
        step=update.state["step"] + 1,
        offset=start,
        strides=strides,
    )
