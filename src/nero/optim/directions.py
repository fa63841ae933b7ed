"""Before a step: directions of whole layers take the place of gradients."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nero.backends.plain import average_noise_of
from nero.core.directions import layer_direction
from nero.core.rule import average_along, rows_of
from nero.core.update import Update


def follow_directions(updates: Sequence[Update]) -> list[Update]:
    """Return the updates of a step, with a direction as the gradient of each layer that follows one.

    Their momentum buffers are updated here; the rest of the step needs no momentum.
    """
    sharded = [update for update in updates if update.whole is not None]
    pairs: dict[int, tuple[Tensor, Update]] = {}
    if sharded:
        from nero.distributed import sharded_directions

        gradients = [_gradient(update) for update in sharded]
        for direction, update in sharded_directions(gradients, sharded):
            pairs[update.position] = direction, update
    for update in updates:
        name = update.hyper.direction
        if name != "gradient" and update.position not in pairs:
            direction = layer_direction(name, _gradient(update), update.neurons)
            pairs[update.position] = direction, update
    # Nothing is written before all directions are known: a user's function may raise.
    return [_along(*pairs[u.position]) if u.position in pairs else u for u in updates]


def _gradient(update: Update) -> Tensor:
    """Return the gradient, or its average a step ahead."""
    return rows_of(update.weight, update.grad, update.state, update.hyper)["g"]


def _along(direction: Tensor, update: Update) -> Update:
    average = average_along(
        *(update.weight, update.grad, update.state, direction),
        neurons=update.neurons,
        lr=update.lr,
        hyper=update.hyper,
        noise=average_noise_of(update),
    )
    for key, value in average.items():
        update.state[key].copy_(value)
    grad = torch.empty_like(update.weight)  # in memory that kernels walk as they walk the weights
    return update._replace(
        grad=grad.copy_(direction),
        state={key: tensor for key, tensor in update.state.items() if key != "exp_avg"},
        hyper=update.hyper.along_given(),
    )
