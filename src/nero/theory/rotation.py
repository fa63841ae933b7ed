"""Turn neurons by an angle, and keep their norms."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nero.diagnostics import turning_angle
from nero.functional import neuron_norm, sum_dtype


@dataclass(frozen=True)
class Rotation:
    """Rotations of the neurons of one parameter; what they return is in summing precision.

    Angles are measured at the origin, between a neuron before and after.

    Args:
        fan_in_dims: the dims that belong to one neuron.
        centre: whether to turn within the hyperplane of vectors whose mean is zero, so that balanced
            neurons stay balanced.

    Example:
        >>> from nero.theory.rotation import Rotation
        >>> rotation = Rotation(fan_in_dims=(1,), centre=False)
        >>> weight, direction = torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 3.0]])
        >>> rotation.part_across(weight, direction)
        tensor([[0., 3.]], dtype=torch.float64)
        >>> turned = rotation.towards(weight, direction, torch.pi / 2)
        >>> turned.round(decimals=6)
        tensor([[0., 2.]], dtype=torch.float64)
        >>> rotation.into_cap(turned, weight, torch.pi / 6)
        tensor([[1.7321, 1.0000]], dtype=torch.float64)
    """

    fan_in_dims: tuple[int, ...]
    centre: bool = True

    def towards(self, weight: Tensor, direction: Tensor, angle_rad: float | Tensor) -> Tensor:
        """Turn each neuron by an angle, along the shortest way towards a direction.

        A neuron stays if nothing of its direction is left across it. The angle is one for all, or one for
        each neuron in keepdim shape.
        """
        w = weight.to(sum_dtype(weight))
        way = self.part_across(w, direction)
        angle = torch.as_tensor(angle_rad, dtype=w.dtype, device=w.device)
        across = self.norm(w) * self._unit(way)
        has_way = (way != 0).any(self.fan_in_dims, keepdim=True)
        return torch.where(has_way, angle.cos() * w + angle.sin() * across, w)

    def at_random(
        self, weight: Tensor, angle_rad: float, generator: torch.Generator | None = None
    ) -> Tensor:
        """Turn each neuron by exactly an angle, in a direction of its own that is uniformly random."""
        noise = torch.randn(weight.shape, generator=generator, dtype=sum_dtype(weight))
        return self.towards(weight, noise.to(weight.device), angle_rad)

    def into_cap(self, weight: Tensor, origin: Tensor, max_angle_rad: float) -> Tensor:
        """Turn each neuron back towards its origin, until it is within an angle of it."""
        return self.towards(origin, weight, self.angle(origin, weight).clamp(max=max_angle_rad))

    def part_across(self, weight: Tensor, direction: Tensor) -> Tensor:
        """Return the part of each direction that turns a neuron: orthogonal to it, and centred."""
        unit, way = self._unit(weight), direction.to(sum_dtype(weight))
        for _ in range(2):  # the second time removes what cancellation left
            if self.centre:
                way = way - way.mean(self.fan_in_dims, keepdim=True)
            way = way - unit * (unit * way).sum(self.fan_in_dims, keepdim=True)
        # What is left of a direction along the neuron is rounding, and rounding is no direction.
        return torch.where(self.norm(way) > 1e-12 * self.norm(direction), way, 0.0)

    def angle(self, before: Tensor, after: Tensor) -> Tensor:
        """Return `turning_angle`, per neuron."""
        return turning_angle(before, after, fan_in_dims=self.fan_in_dims)

    def norm(self, weight: Tensor) -> Tensor:
        """Return `neuron_norm`, per neuron."""
        return neuron_norm(weight, fan_in_dims=self.fan_in_dims)

    def _unit(self, tensor: Tensor) -> Tensor:
        norm = self.norm(tensor)
        return tensor.to(norm.dtype) / torch.where(norm > 0, norm, 1.0)
