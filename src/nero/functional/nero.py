"""Nero's whole update (Algorithm 1): sums, coefficients, new rows.

Pure functions of tensors. The optimiser adds nothing but state.
"""

import math
from typing import NamedTuple

from torch import Tensor

from nero.functional.constraint import BALANCED, Sphere
from nero.functional.precision import working_dtype
from nero.functional.sums import neuron_sums
from nero.functional.turn import apply_turn, turn_elements, turn_neurons


class Updated(NamedTuple):
    """New weights and the new running average, and which neurons were not skipped."""

    weight: Tensor
    avg_norm: Tensor
    is_finite: Tensor


def nero_neurons(
    weight: Tensor,
    grad: Tensor,
    avg_norm: Tensor,
    *,
    fan_in_dims: tuple[int, ...],
    step: int | Tensor,
    lr: float | Tensor = 0.01,
    beta: float = 0.999,
    constraint: Sphere = BALANCED,
    radius: Tensor | None = None,
    zero_norm: float = 0.01,
    propagate_nonfinite: bool = False,
    noise: Tensor | None = None,
) -> Updated:
    """Update neurons once: sums, coefficients, new rows (Algorithm 1, weight update).

    Pure and differentiable; see [`turn_neurons`][nero.functional.turn_neurons] for the arguments
    and the awkward cases.

    Example:
        >>> w = project(torch.randn(4, 10), fan_in_dims=(1,))
        >>> new = nero_neurons(w, torch.randn(4, 10), torch.zeros(4, 1), fan_in_dims=(1,), step=1)
        >>> torch.allclose(new.weight.norm(dim=1), torch.ones(4))
        True
    """
    turn = turn_neurons(
        neuron_sums(weight, grad, fan_in_dims=fan_in_dims),
        avg_norm,
        fan_in=math.prod([weight.shape[d] for d in fan_in_dims]),
        step=step,
        lr=lr,
        beta=beta,
        dtype=working_dtype(weight.dtype),
        constraint=constraint,
        radius=radius,
        zero_norm=zero_norm,
        propagate_nonfinite=propagate_nonfinite,
    )
    return Updated(apply_turn(weight, grad, turn, noise=noise), turn.avg_norm, turn.is_finite)


def nero_elements(
    weight: Tensor,
    grad: Tensor,
    avg_norm: Tensor,
    *,
    scale: float | Tensor,
    step: int | Tensor,
    lr: float | Tensor = 0.01,
    beta: float = 0.999,
    propagate_nonfinite: bool = False,
    noise: Tensor | None = None,
) -> Updated:
    """Update biases, gains and other parameters without fan-in once.

    Pure and differentiable; see [`turn_elements`][nero.functional.turn_elements] for the arguments.

    Example:
        >>> new = nero_elements(torch.ones(2), torch.tensor([7.0, 0.0]), torch.zeros(2), scale=1.0, step=1)
        >>> new.weight
        tensor([0.9900, 1.0000])
    """
    turn = turn_elements(
        grad,
        avg_norm,
        scale=scale,
        step=step,
        lr=lr,
        beta=beta,
        dtype=working_dtype(weight.dtype),
        propagate_nonfinite=propagate_nonfinite,
    )
    return Updated(apply_turn(weight, grad, turn, noise=noise), turn.avg_norm, turn.is_finite)
