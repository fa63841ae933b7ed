"""The reference backend: readable torch operations, any device, dtype and memory format.

Every faster backend is held to this one by tests, and this one to a float64 loop over neurons. Large
tensors are read and written in blocks of whole neurons, so that what one operation leaves is in cache for
the next, and in buffers that are made once, because fresh memory costs more than what is done in it.
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

# Weights of a block for each thread: the least that torch gives to one, and in float64 few enough for its
# second-level cache. A GPU takes a fixed number of such blocks at once.
_BLOCK, _ON_GPU = 1 << 15, 4


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
    """Tell whether neurons are rows of a matrix on a CPU, summed more precisely than they are kept."""
    weight, dims = update.weight, update.neurons.fan_in_dims
    is_last = dims == tuple(range(weight.ndim - len(dims), weight.ndim))
    is_exact = working_dtype(weight.dtype) != sum_dtype(weight)
    return is_last and is_exact and weight.device.type == "cpu"


def _gram_of_matrix(update: Update, blocks: Sequence[Update]) -> Gram:
    """Compute all products of a neuron's rows, and of ones, as one small matrix product in float64.

    It reads copies of the rows once, where `gram_of` has an operation or two for every product.
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
    """Turn the products of a parameter's rows into the coefficients of its new ones."""
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
    """Write weights, and the average of the gradient."""
    dtype = working_dtype(update.weight.dtype)
    blocks = _blocks(update, each=2)  # of float32
    buffer = None
    for block, now in zip(blocks, _cut(turn, blocks), strict=True):
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
        # apply_turn to the bit, without temporaries, and with one broadcast number per operation, because
        # torch does those in vectors
        if buffer is None:
            buffer = torch.empty(weight.numel(), dtype=dtype, device=weight.device)
        p, q = now.weight.coefficients
        new = buffer[: weight.numel()].view(weight.shape).copy_(now.weight.shift)
        new.addcmul_(weight, p)
        if weight.device.type == "cpu" and now.moves.all():  # a GPU would have to be waited for
            torch.addcmul(new, rows["g"], q, out=weight)
        else:
            torch.where(now.moves, new.addcmul_(rows["g"], q), weight, out=weight)


def write_state_(update: Update, turn: Turn) -> None:
    """Write what has one number per neuron, and count the step."""
    for key, value in turn.state.items():
        update.state[key].copy_(value)
    # A step at lr = 0 leaves no trace, in no counter.
    is_active = update.lr != 0
    update.state["step"].add_(is_active)
    if update.hyper.nonfinite != "propagate":
        update.state["num_skipped"].add_((~turn.is_finite).sum() * is_active)


def _blocks(update: Update, each: int = 1) -> list[Update]:
    """Cut dim 0, if it indexes neurons and there is enough of it, into updates of some neurons each.

    Args:
        update: what to cut.
        each: how many times the usual size a block has.
    """
    weight = update.weight
    if 0 in update.neurons.fan_in_dims or torch.compiler.is_compiling():
        return [update]
    size = each * _BLOCK * (torch.get_num_threads() if weight.device.type == "cpu" else _ON_GPU)
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


def _cut(turn: Turn, blocks: Sequence[Update]) -> list[Turn]:
    """Cut what was worked out for all neurons as `_blocks` has cut them."""
    if len(blocks) == 1:  # of which a scalar is one
        return [turn]
    num = len(blocks[0].weight)
    cut = [x.split(num) for x in (*turn.weight.coefficients, turn.weight.shift)]
    marks = turn.moves.split(num), turn.is_written.split(num)
    return [
        turn._replace(weight=Affine((p, q), r), moves=moves, is_written=is_written)
        for p, q, r, moves, is_written in zip(*cut, *marks, strict=True)
    ]


def noise_of(update: Update, *, lane: int = 0) -> Tensor:
    """Return the noise that rounds this step: that of weights, or in lane 1 that of averages."""
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
    """Return the noise that rounds averages of the gradient, if there are any that need it."""
    return noise_of(update, lane=1) if rounds_average(update) else None
