"""The reference backend: readable torch operations for any device, dtype and memory format.

Every faster backend is tested against this one, and this one against a float64 loop over neurons. Large
tensors are processed in blocks of whole neurons, so that one operation's results are in cache for the next,
and in buffers that are allocated once, because fresh memory costs more than the arithmetic.
"""

import math
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
from nero.core.update import Places, Update, rounds_average

# Weights per block and thread: torch's grain size, which in float64 still fits into the second-level cache.
# A GPU takes a fixed number of such blocks at once.
_BLOCK, _ON_GPU = 1 << 15, 4


def step_(updates: Sequence[Update]) -> None:
    """Update, in place, the weights and state of every parameter; gradients are only read."""
    for update in updates:
        products = None if update.neurons.is_elementwise else gram_of(update)
        turn = turn_of(update, products)
        write_rows_(update, turn)
        write_state_(update, turn)


def gram(updates: Sequence[Update]) -> list[Gram]:
    """Compute the Gram matrix of this rank's part of every neuron."""
    return [gram_of(update) for update in updates]


def apply_(updates: Sequence[Update], turns: Sequence[Turn]) -> None:
    """Write new rows and state."""
    for update, turn in zip(updates, turns, strict=True):
        write_rows_(update, turn)
        write_state_(update, turn)


def gram_of(update: Update) -> Gram:
    """Compute the Gram matrix of every neuron."""
    blocks = _blocks(update)
    rows = _rows(blocks[0])
    if len(blocks) == 1:
        return gram_of_rows(rows, fan_in_dims=update.neurons.fan_in_dims)
    if _is_matrix(update):
        return _gram_of_matrix(update, blocks)
    letters, size = "".join(rows), rows["w"].numel()
    keys, dtype, device = gram_keys(letters), sum_dtype(update.weight), update.weight.device
    shape = update.state["exp_avg_norm"].shape
    sums = torch.empty((len(keys), *shape), dtype=dtype, device=device)
    buffers = torch.empty((len(letters) + 1, size), dtype=dtype, device=device)
    for block, outs in zip(blocks, sums.split(len(rows["w"]), 1), strict=True):
        rows = _rows(block)
        weight = rows["w"]
        product, *copies = (buffer[: weight.numel()].view(weight.shape) for buffer in buffers)
        exact = {
            letter: copy.copy_(rows[letter]) for letter, copy in zip(rows, copies, strict=True)
        }
        for out, (a, b) in zip(outs, map(tuple, keys), strict=True):
            x = exact[a] if b == "1" else torch.mul(exact[a], exact[b], out=product)
            torch.sum(x, update.neurons.fan_in_dims, keepdim=True, out=out)
    return Gram(sums, letters)


def _is_matrix(update: Update) -> bool:
    """Whether neurons are rows of a matrix on a CPU, summed in a higher precision than their own."""
    weight, dims = update.weight, update.neurons.fan_in_dims
    is_last = dims == tuple(range(weight.ndim - len(dims), weight.ndim))
    is_exact = working_dtype(weight.dtype) != sum_dtype(weight)
    return is_last and is_exact and weight.device.type == "cpu"


def _gram_of_matrix(update: Update, blocks: Sequence[Update]) -> Gram:
    """Compute all products of a neuron's rows and ones as one small matrix product in float64.

    It reads copies of the rows once, while `gram_of` needs one or two operations per product.
    """
    fan_in = math.prod(update.weight.shape[d] for d in update.neurons.fan_in_dims)
    first = _rows(blocks[0])
    letters, num = "".join(first) + "1", first["w"].numel() // fan_in
    size, dtype = len(letters), sum_dtype(update.weight)
    copies = torch.ones((size, num, fan_in), dtype=dtype)
    products = torch.empty((update.weight.numel() // fan_in, size, size), dtype=dtype)
    parts, pair = copies.unbind(), (copies.transpose(0, 1), copies.permute(1, 2, 0))
    for block, out in zip(blocks, products.split(num), strict=True):
        if len(out) < num:  # the last
            parts = tuple(part[: len(out)] for part in parts)
            pair = pair[0][: len(out)], pair[1][: len(out)]
        for row, part in zip(_rows(block).values(), parts, strict=False):
            part.copy_(row if row.ndim == 2 else row.reshape(part.shape))
        torch.bmm(*pair, out=out)
    keys = [(letters.index(a), letters.index(b)) for a, b in map(tuple, gram_keys(letters[:-1]))]
    sums = torch.stack([products[:, a, b] for a, b in keys])
    return Gram(sums.view(-1, *update.state["exp_avg_norm"].shape), letters[:-1])


def turn_of(update: Update, products: Gram | None) -> Turn:
    """Compute the coefficients of a parameter's new rows from the products of its old ones."""
    return turn_rows(
        products,
        _rows(update) if products is None else {"w": update.weight},
        update.state,
        neurons=update.neurons,
        step=update.state["step"] + 1,
        lr=update.lr,
        hyper=update.hyper,
    )


def write_rows_(update: Update, turn: Turn) -> None:
    """Write weights and momentum buffers."""
    dtype = working_dtype(update.weight.dtype)
    blocks = _blocks(update, scale=2)  # float32 takes half the memory of float64
    buffer = None
    for block, now in zip(blocks, _split(turn, blocks), strict=True):
        rows, weight = _rows(block), block.weight
        noise = noise_of(block) if update.hyper.stochastic_rounding else None
        if "exp_avg" in block.state:  # before the weights change
            block.state["exp_avg"].copy_(
                average_grad(
                    *(weight, block.grad, block.state["exp_avg"], now.is_written, update.hyper),
                    noise=average_noise_of(block),
                )
            )
        is_mixed = {row.dtype for row in rows.values()} != {dtype}
        if len(blocks) == 1 or noise is not None or is_mixed:
            weight.copy_(apply_turn(rows, now, noise=noise))
            continue
        # Bit-identical to apply_turn, but without temporaries, and with one broadcast operand per
        # operation, because torch vectorizes those.
        if buffer is None:
            buffer = torch.empty(weight.numel(), dtype=dtype, device=weight.device)
        p, q = now.weight.coefficients
        new = buffer[: weight.numel()].view(weight.shape).copy_(now.weight.shift)
        new.addcmul_(weight, p)
        if weight.device.type == "cpu" and now.moves.all():  # would synchronize on a GPU
            torch.addcmul(new, rows["g"], q, out=weight)
        else:
            torch.where(now.moves, new.addcmul_(rows["g"], q), weight, out=weight)


def write_state_(update: Update, turn: Turn) -> None:
    """Write per-neuron state, and count the step."""
    for key, value in turn.state.items():
        update.state[key].copy_(value)
    # A step at lr = 0 changes nothing, not even a counter.
    is_active = update.lr != 0
    update.state["step"].add_(is_active)
    if update.hyper.nonfinite != "propagate":
        update.state["num_skipped"].add_((~turn.is_finite).sum() * is_active)


def _blocks(update: Update, scale: int = 1) -> list[Update]:
    """Split a large update along dim 0, if that indexes neurons, into ``scale`` times the usual blocks."""
    weight = update.weight
    if 0 in update.neurons.fan_in_dims or torch.compiler.is_compiling():
        return [update]
    size = scale * _BLOCK * (torch.get_num_threads() if weight.device.type == "cpu" else _ON_GPU)
    if weight.numel() <= size:
        return [update]
    num = max(size // weight[0].numel(), 1)
    weights, grads = weight.split(num), update.grad.split(num)
    states = [update.state] * len(weights)
    if "exp_avg" in update.state:
        averages = update.state["exp_avg"].split(num)
        states = [{**update.state, "exp_avg": average} for average in averages]
    blocks = [
        update._replace(weight=weight, grad=grad, state=state)
        for weight, grad, state in zip(weights, grads, states, strict=True)
    ]
    if update.hyper.stochastic_rounding or rounds_average(update):
        start, strides = update.places or (0, torch.empty(weight.shape, device="meta").stride())
        places = [Places(start + i * num * strides[0], strides) for i in range(len(blocks))]
        return [b._replace(places=place) for b, place in zip(blocks, places, strict=True)]
    return blocks


def _rows(update: Update) -> dict[str, Tensor]:
    return rows_of(update.weight, update.grad, update.state, update.hyper)


def _split(turn: Turn, blocks: Sequence[Update]) -> list[Turn]:
    """Split the coefficients of all neurons into those of each block."""
    if len(blocks) == 1:  # may be a scalar, which cannot be split
        return [turn]
    num = len(blocks[0].weight)
    coefficients = [x.split(num) for x in (*turn.weight.coefficients, turn.weight.shift)]
    masks = turn.moves.split(num), turn.is_written.split(num)
    return [
        turn._replace(weight=Affine((p, q), r), moves=moves, is_written=is_written)
        for p, q, r, moves, is_written in zip(*coefficients, *masks, strict=True)
    ]


def noise_of(update: Update, *, lane: int = 0) -> Tensor:
    """Return this step's rounding noise: for weights in lane 0, for momentum buffers in lane 1."""
    start, strides = update.places or (0, None)
    return uniform_noise(
        update.weight,
        seed=update.hyper.seed,
        stream=update.position,
        step=update.state["step"] + 1,
        offset=start,
        strides=strides,
        lane=lane,
    )


def average_noise_of(update: Update) -> Tensor | None:
    """Return the rounding noise of a bfloat16 momentum buffer, if there is one."""
    return noise_of(update, lane=1) if rounds_average(update) else None
