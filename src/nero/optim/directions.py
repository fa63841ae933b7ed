"""Replace gradients with whole-layer directions before a step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nero.backends.plain import average_noise_of
from nero.core.batches import batches_of, stacked, unstacked
from nero.core.directions import layer_direction
from nero.core.rule import average_along, rows_of
from nero.core.update import Update


def follow_directions(updates: Sequence[Update]) -> list[Update]:
    """Return the updates of a step, with a direction as the gradient of each layer that follows one.

    Their momentum buffers are updated here; the rest of the step needs no momentum.
    """
    found: list[tuple[Tensor, list[Update]]] = []
    sharded = [update for update in updates if update.whole is not None]
    if sharded:
        from nero.distributed import sharded_directions

        gradients = [_gradient(update) for update in sharded]
        found += [(d, [update]) for d, update in sharded_directions(gradients, sharded)]
    own = [u for u in updates if u.whole is None and u.hyper.direction != "gradient"]
    found += [(_direction(stacked(batch)), batch) for batch in batches_of(own)]
    # Nothing is written before all directions are known: a user's function may raise.
    along = {u.position: u for direction, batch in found for u in _along(direction, batch)}
    return [along.get(update.position, update) for update in updates]


def _direction(update: Update) -> Tensor:
    name, neurons, gradient = update.hyper.direction, update.neurons, _gradient(update)
    del update  # its stacks
    return layer_direction(name, gradient, neurons)


def _gradient(update: Update) -> Tensor:
    """Return the gradient, or its Nesterov look-ahead average."""
    return rows_of(update.weight, update.grad, update.state, update.hyper)["g"]


def _along(direction: Tensor, batch: Sequence[Update]) -> list[Update]:
    """Update the momentum buffers of a batch, and return its updates along their directions."""
    update = stacked(batch)
    noises = [noise for noise in map(average_noise_of, batch) if noise is not None]
    average = average_along(
        *(update.weight, update.grad, update.state, direction),
        neurons=update.neurons,
        lr=update.lr,
        hyper=update.hyper,
        noise=torch.stack(noises).view(update.grad.shape) if noises else None,
    )
    for key, value in average.items():
        torch._foreach_copy_([member.state[key] for member in batch], unstacked(value, batch))
    return [
        member._replace(
            grad=_in_memory_of(member.weight, layer),
            state={key: tensor for key, tensor in member.state.items() if key != "exp_avg"},
            hyper=member.hyper.along_given(),
        )
        for member, layer in zip(batch, unstacked(direction, batch), strict=True)
    ]


def _in_memory_of(weight: Tensor, direction: Tensor) -> Tensor:
    """Return a direction with the weight's dtype and strides, as kernels require."""
    if direction.dtype == weight.dtype and direction.stride() == weight.stride():
        return direction
    return torch.empty_like(weight).copy_(direction)
