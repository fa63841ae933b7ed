"""Turn neurons by an angle, and keep their norms.

Angles are measured at the origin, between a neuron before and after. Balanced neurons stay
balanced: they are turned within the hyperplane of vectors whose mean is zero.
"""

import torch
from torch import Tensor

from nero.diagnostics import turning_angle
from nero.functional import neuron_norm, sum_dtype


def turn_towards(
    weight: Tensor,
    direction: Tensor,
    angle_rad: float | Tensor,
    *,
    fan_in_dims: tuple[int, ...],
    centre: bool = True,
) -> Tensor:
    """Turn each neuron by an angle, along the shortest way towards a direction.

    Args:
        weight: weights.
        direction: where to turn to, in the shape of ``weight``; only the part counts that is
            orthogonal to the neuron.
        angle_rad: one angle for all, or one for each neuron in keepdim shape.
        fan_in_dims: the dims that belong to one neuron.
        centre: whether the mean of the direction is left out, so that balanced neurons stay
            balanced.

    Returns:
        The turned weights, in summing precision. A neuron stays if nothing of its direction is
        left.

    Example:
        >>> from nero.theory.rotation import turn_towards
        >>> turn_towards(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 1.0]]), torch.pi / 2,
        ...              fan_in_dims=(1,), centre=False).round(decimals=6)
        tensor([[0., 2.]], dtype=torch.float64)
    """
    w = weight.to(sum_dtype(weight))
    way = part_across(w, direction, fan_in_dims=fan_in_dims, centre=centre)
    angle = torch.as_tensor(angle_rad, dtype=w.dtype, device=w.device)
    across = neuron_norm(w, fan_in_dims=fan_in_dims) * _unit(way, fan_in_dims)
    has_way = (way != 0).any(fan_in_dims, keepdim=True)
    return torch.where(has_way, angle.cos() * w + angle.sin() * across, w)


def part_across(
    weight: Tensor, direction: Tensor, *, fan_in_dims: tuple[int, ...], centre: bool = True
) -> Tensor:
    """Return the part of each direction that turns a neuron: orthogonal to it, and of mean zero.

    Args:
        weight: weights.
        direction: a direction for each neuron, in the shape of ``weight``.
        fan_in_dims: the dims that belong to one neuron.
        centre: whether the mean is removed too.

    Example:
        >>> from nero.theory.rotation import part_across
        >>> part_across(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 3.0]]), fan_in_dims=(1,),
        ...             centre=False)
        tensor([[0., 3.]], dtype=torch.float64)
    """
    unit, way = _unit(weight, fan_in_dims), direction.to(sum_dtype(weight))
    for _ in range(2):  # the second time removes what cancellation left
        if centre:
            way = way - way.mean(fan_in_dims, keepdim=True)
        way = way - unit * (unit * way).sum(fan_in_dims, keepdim=True)
    # What is left of a direction along the neuron is rounding, and rounding is no direction.
    size = neuron_norm(direction, fan_in_dims=fan_in_dims)
    has_way = neuron_norm(way, fan_in_dims=fan_in_dims) > 1e-12 * size
    return torch.where(has_way, way, 0.0)


def random_turn(
    weight: Tensor,
    angle_rad: float,
    *,
    fan_in_dims: tuple[int, ...],
    centre: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Turn each neuron by exactly an angle, in a direction of its own that is uniformly random.

    Example:
        >>> from nero.diagnostics import turning_angle
        >>> from nero.theory.rotation import random_turn
        >>> weight = nero.functional.project(torch.randn(4, 8), fan_in_dims=(1,))
        >>> turned = random_turn(weight, 0.1, fan_in_dims=(1,))
        >>> turning_angle(weight, turned, fan_in_dims=(1,)).flatten()
        tensor([0.1000, 0.1000, 0.1000, 0.1000], dtype=torch.float64)
    """
    noise = torch.randn(weight.shape, generator=generator, dtype=sum_dtype(weight))
    return turn_towards(
        weight, noise.to(weight.device), angle_rad, fan_in_dims=fan_in_dims, centre=centre
    )


def pull_into_cap(
    weight: Tensor,
    origin: Tensor,
    max_angle_rad: float,
    *,
    fan_in_dims: tuple[int, ...],
    centre: bool = True,
) -> Tensor:
    """Turn each neuron back towards its origin, until it is within an angle of it.

    Example:
        >>> from nero.theory.rotation import pull_into_cap
        >>> pull_into_cap(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]), torch.pi / 6,
        ...               fan_in_dims=(1,), centre=False)
        tensor([[0.8660, 0.5000]], dtype=torch.float64)
    """
    angle = turning_angle(origin, weight, fan_in_dims=fan_in_dims).clamp(max=max_angle_rad)
    return turn_towards(origin, weight, angle, fan_in_dims=fan_in_dims, centre=centre)


def _unit(tensor: Tensor, fan_in_dims: tuple[int, ...]) -> Tensor:
    norm = neuron_norm(tensor, fan_in_dims=fan_in_dims)
    return tensor.to(norm.dtype) / torch.where(norm > 0, norm, 1.0)
