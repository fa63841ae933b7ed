"""Before a step: directions that take a whole matrix to find are put in the place of gradients."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nero.backends.plain import average_noise_of
from nero.core.polar import polar_direction
from nero.core.rule import average_along, rows_of
from nero.core.update import Update


def along_polar(updates: Sequence[Update]) -> list[Update]:
    """Return the updates of a step, those with ``direction="polar"`` with the factor as their gradient.

    Their averages are written here; what is left of the step needs no momentum.
    """
    cut = [update for update in updates if update.whole is not None]
    found: dict[int, tuple[Tensor, Update]] = {}
    if cut:
        from nero.distributed import polar_directions

        pairs = polar_directions([_direction(update) for update in cut], cut)
        found = {update.position: (factor, update) for factor, update in pairs}
    done = []
    for update in updates:
        if update.position in found:
            update = _along(*found[update.position])
        elif update.hyper.direction == "polar":
            update = _along(polar_direction(_direction(update), update.neurons), update)
        done.append(update)
    return done


def _direction(update: Update) -> Tensor:
    return rows_of(update.weight, update.grad, update.state, update.hyper)["g"]


def _along(factor: Tensor, update: Update) -> Update:
    average = average_along(
        *(update.weight, update.grad, update.state, factor),
        neurons=update.neurons,
        lr=update.lr,
        hyper=update.hyper,
        noise=average_noise_of(update),
    )
    for key, value in average.items():
        update.state[key].copy_(value)
    grad = torch.empty_like(update.weight)  # in memory that kernels walk as they walk the weights
    return update._replace(
        grad=grad.copy_(factor),
        state={key: tensor for key, tensor in update.state.items() if key != "exp_avg"},
        hyper=update.hyper.along_given(),
    )
