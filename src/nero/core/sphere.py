"""Constraints on neurons, and the projection onto them.

The paper's balanced neuron (Definition 1) has mean zero and norm one. Each is a field of
[`Sphere`][nero.Sphere], so every variant in the paper's ablation is a value, not a branch:

| name | value | in the paper |
|---|---|---|
| `BALANCED` | `Sphere()` | Definition 1, the default |
| `NORM_ONLY` | `Sphere(centre=False)` | Figure 1, "fix norm" |
| `MEAN_ONLY` | `Sphere(radius=None)` | Figure 1, "fix mean" |
| `UNCONSTRAINED` | `Sphere(radius=None, centre=False)` | Figure 1, neither |
| `INITIAL_SPHERE` | `Sphere(radius="initial", centre=False)` | not there: for fine-tuning |
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from nero.core.arguments import check_fan_in_dims, check_real
from nero.core.precision import balance_tolerance, sum_dtype, working_dtype

Radius: TypeAlias = float | Literal["initial", "sqrt_dim"] | None


@dataclass(frozen=True)
class Sphere:
    """A sphere of neurons: norm ``radius``, and mean zero if ``centre``.

    Args:
        radius: the norm of every neuron. ``"initial"`` keeps the norm that each neuron has when the
            optimizer is built. ``"sqrt_dim"`` is the root of the fan-in, so that weights are about one in
            size, which suits embeddings of a residual stream. ``None`` leaves the norm free.
        centre: whether the mean of every neuron is zero.

    Example:
        >>> Sphere(radius="initial", centre=False)  # pretrained weights stay unchanged
        Sphere(radius='initial', centre=False)
        >>> Sphere(radius=-1.0)
        Traceback (most recent call last):
        ValueError: radius must be a positive finite number, "initial", "sqrt_dim" or None, but is -1.0
    """

    radius: Radius = 1.0
    centre: bool = True

    def __post_init__(self) -> None:
        r = self.radius
        is_number = isinstance(r, int | float) and not isinstance(r, bool)
        is_named = r is None or (isinstance(r, str) and r in ("initial", "sqrt_dim"))
        if not is_named and not (is_number and 0 < r < math.inf):  # type: ignore[operator]
            raise ValueError(
                f'radius must be a positive finite number, "initial", "sqrt_dim" or None, but is {r!r}'
            )
        if not isinstance(self.centre, bool | int):
            raise TypeError(f"centre must be True or False, not {self.centre!r}")

    @property
    def is_free(self) -> bool:
        """Whether nothing is constrained."""
        return self.radius is None and not self.centre

    def for_fan_in(self, fan_in: int) -> "Sphere":
        """Return the constraint for neurons of this fan-in, with a number for ``"sqrt_dim"``.

        Note:
            With a fan-in of two, fixing mean and norm would leave two points, ``(1, -1)/sqrt(2)`` and its
            negative, so the mean is free.
        """
        sphere = self.with_norm(fan_in)
        if fan_in == 2 and sphere.centre and sphere.radius is not None:
            return replace(sphere, centre=False)
        return sphere

    def with_norm(self, fan_in: int) -> "Sphere":
        """Return the constraint with a number for ``"sqrt_dim"``.

        Example:
            >>> Sphere(radius="sqrt_dim").with_norm(9).radius
            3.0
        """
        return replace(self, radius=math.sqrt(fan_in)) if self.radius == "sqrt_dim" else self

    def __deepcopy__(self, memo: Any) -> "Sphere":
        return self  # immutable

    def __str__(self) -> str:
        parts = ["mean 0"] if self.centre else []
        if self.radius is not None:
            is_number = not isinstance(self.radius, str)
            parts.append(f"norm {self.radius:g}" if is_number else f"norm {self.radius}")
        return ", ".join(parts) or "none"


BALANCED = Sphere()
"""Mean zero and norm one (Definition 1), also called ``"balanced"``."""
NORM_ONLY = Sphere(centre=False)
"""Norm one, also called ``"norm"``."""
MEAN_ONLY = Sphere(radius=None)
"""Mean zero, also called ``"mean"``."""
UNCONSTRAINED = Sphere(radius=None, centre=False)
"""No constraint, also called ``"none"``."""
INITIAL_SPHERE = Sphere(radius="initial", centre=False)
"""Each neuron's initial norm, also called ``"initial"``: for pretrained weights."""

CONSTRAINT_NAMES = {  # for configuration files and trainers
    "balanced": BALANCED,
    "norm": NORM_ONLY,
    "mean": MEAN_ONLY,
    "none": UNCONSTRAINED,
    "initial": INITIAL_SPHERE,
}


def as_constraint(value: "Sphere | str | Mapping[str, Any]") -> Sphere:
    """Read a constraint from a [`Sphere`][nero.Sphere], a name, or the mapping found in checkpoints.

    Example:
        >>> as_constraint("norm")
        Sphere(radius=1.0, centre=False)
        >>> as_constraint({"radius": 2.0, "centre": True})
        Sphere(radius=2.0, centre=True)
    """
    if isinstance(value, Sphere):
        return value
    if isinstance(value, str):
        if value not in CONSTRAINT_NAMES:
            raise ValueError(
                f"constraint must be a Sphere or one of {[*CONSTRAINT_NAMES]}, not {value!r}"
            )
        return CONSTRAINT_NAMES[value]
    if isinstance(value, Mapping):
        unknown = [key for key in value if key not in ("radius", "centre")]
        if unknown:
            raise TypeError(
                f"constraint has {unknown[0]!r}, but a Sphere has radius and centre: give only those"
            )
        return Sphere(**value)
    raise TypeError(f"constraint must be a Sphere or its name, not {type(value).__name__}")


def neuron_norm(weight: Tensor, *, fan_in_dims: tuple[int, ...]) -> Tensor:
    """Compute the norm of every neuron, in keepdim shape and summing precision.

    Example:
        >>> neuron_norm(torch.tensor([[3.0, 4.0]]), fan_in_dims=(1,)).item()
        5.0
    """
    _check(weight, fan_in_dims)
    return weight.to(sum_dtype(weight)).square().sum(fan_in_dims, keepdim=True).sqrt()


def is_balanced(
    weight: Tensor,
    *,
    fan_in_dims: tuple[int, ...],
    constraint: Sphere = BALANCED,
    radius: Tensor | None = None,
) -> Tensor:
    """Check for every neuron whether it obeys ``constraint`` up to the rounding of its dtype.

    Args:
        weight: weights, of any dtype and memory format.
        fan_in_dims: the dims of ``weight`` that belong to one neuron.
        constraint: the constraint to check.
        radius: the norm of each neuron, for ``Sphere(radius="initial")``.

    Returns:
        A boolean tensor in keepdim shape.

    Example:
        >>> w = torch.tensor([[0.6, -0.8], [3.0, 4.0]])
        >>> is_balanced(w, fan_in_dims=(1,), constraint=NORM_ONLY).flatten().tolist()
        [True, False]
    """
    _check(weight, fan_in_dims)
    fan_in = _count(weight, fan_in_dims)
    constraint = as_constraint(constraint).with_norm(fan_in)
    w = weight.to(sum_dtype(weight))
    tolerance = balance_tolerance(weight.dtype)
    norm = w.square().sum(fan_in_dims, keepdim=True).sqrt()
    balanced = torch.isfinite(norm)
    if constraint.centre:
        drift = w.sum(fan_in_dims, keepdim=True).abs() / math.sqrt(fan_in)
        balanced = balanced & (drift <= tolerance * norm)
    target = _target(constraint, radius, norm)
    if target is not None:
        balanced = balanced & ((norm - target).abs() <= tolerance * target)
    return balanced


def project(
    weight: Tensor,
    *,
    fan_in_dims: tuple[int, ...],
    constraint: Sphere = BALANCED,
    radius: Tensor | None = None,
) -> Tensor:
    """Project every neuron onto ``constraint`` (Algorithm 1, the last two lines).

    A neuron that already obeys it stays bit-identical, so projecting twice changes nothing.
    Differentiable.

    Args:
        weight: weights, of any dtype and memory format.
        fan_in_dims: the dims of ``weight`` that belong to one neuron.
        constraint: the constraint to project onto.
        radius: the norm of each neuron, for ``Sphere(radius="initial")``.

    Note:
        Zero and constant neurons have no direction to project; they and non-finite ones stay unchanged.

    Example:
        >>> project(torch.tensor([[1.0, 2.0, 3.0]]), fan_in_dims=(1,))
        tensor([[-0.7071,  0.0000,  0.7071]])
    """
    _check(weight, fan_in_dims)
    fan_in = _count(weight, fan_in_dims)
    constraint = as_constraint(constraint).with_norm(fan_in)
    if constraint.is_free:
        return weight
    w = weight.to(sum_dtype(weight))
    centred = w
    if constraint.centre:
        for _ in range(2):  # the second pass removes the rounding error of a large mean
            centred = centred - centred.sum(fan_in_dims, keepdim=True) / fan_in
    size_sq = w.square().sum(fan_in_dims, keepdim=True)
    norm_sq = centred.square().sum(fan_in_dims, keepdim=True)
    # Centring a constant row leaves rounding errors, which are not a direction.
    threshold = 8 * torch.finfo(working_dtype(weight.dtype)).eps
    has_direction = (norm_sq > threshold**2 * size_sq) & torch.isfinite(size_sq)
    target = _target(constraint, radius, norm_sq)
    # The inner where keeps the root away from zero, for the backward pass.
    scale = 1.0 if target is None else target / torch.where(has_direction, norm_sq, 1.0).sqrt()
    done = is_balanced(weight, fan_in_dims=fan_in_dims, constraint=constraint, radius=radius)
    return torch.where(has_direction & ~done, (centred * scale).to(weight.dtype), weight)


def target_radius(constraint: Sphere, radius: Tensor | None) -> float | Tensor | None:
    """Return the norm that neurons must have: one number, one per neuron, or ``None`` if free."""
    if not isinstance(constraint.radius, str):
        return constraint.radius
    if constraint.radius == "sqrt_dim":
        raise ValueError('Sphere(radius="sqrt_dim") needs a fan-in: see Sphere.with_norm')
    if radius is None:
        raise ValueError(
            'Sphere(radius="initial") needs the radius of each neuron: give radius=, one number per neuron'
        )
    return radius


def _target(constraint: Sphere, radius: Tensor | None, norm: Tensor) -> float | Tensor | None:
    target = target_radius(constraint, radius)
    shape = getattr(target, "shape", norm.shape)
    if any(n not in (1, m) for n, m in zip(reversed(shape), reversed(norm.shape), strict=False)):
        raise ValueError(
            f"radius has the shape {tuple(shape)}, but must have one number per neuron: {tuple(norm.shape)}"
        )
    return target


def _check(weight: Tensor, fan_in_dims: tuple[int, ...]) -> None:
    check_real("weight", weight)
    check_fan_in_dims(fan_in_dims, weight.ndim)


def _count(weight: Tensor, dims: tuple[int, ...]) -> int:
    return math.prod([weight.shape[d] for d in dims])
