"""The angles by which neurons turned: without cancellation, in float64, one block of rows at a time.

``arccos`` of a normalized dot product loses half the digits of small angles, the usual case in training,
and all of them at 1e-8. Kahan's formula loses none. For vectors of equal norm,

    angle = 2 * atan2(|u - v|, |u + v|)
"""

from typing import NamedTuple

import torch
from torch import Tensor

from nero.core.arguments import check_alike, check_fan_in_dims
from nero.core.neurons import Neurons
from nero.functional import sum_dtype

_BLOCK = 2**17  # numbers; a few such blocks of float64 stay in a CPU's cache


class NeuronTurns(NamedTuple):
    """What a step did to a parameter's neurons: vectors with one number per neuron.

    If the fan-in is sharded, ranks hold partial sums of all fields except ``angle``, which
    `with_shared_angles` computes from the totals.
    """

    present: Tensor
    """One for a neuron, zero for padding."""
    old_sq: Tensor
    """Sum of w^2 before the step."""
    new_sq: Tensor
    """Sum of w^2 after it."""
    change_sq: Tensor
    """Sum of (w' - w)^2."""
    old_change: Tensor
    """Sum of w * (w' - w)."""
    new_sum: Tensor
    """Sum of w after the step."""
    angle: Tensor
    """In radians; NaN if the neuron is zero or not finite."""
    grad_size: Tensor
    """Largest gradient entry; used only to tell whether the gradient is zero or non-finite."""
    target: Tensor
    """The norm that the neuron should have; NaN if its norm is free."""


def turning_angle(before: Tensor, after: Tensor, *, fan_in_dims: tuple[int, ...]) -> Tensor:
    """Compute the angle between every neuron before and after a step, in radians.

    Exact to rounding for all angles, down to the smallest (Kahan's formula, in float64). Rescaling a neuron
    does not turn it.

    Args:
        before: weights, of any dtype.
        after: weights with the same shape.
        fan_in_dims: the dims that belong to one neuron.

    Returns:
        The angles, in keepdim shape and summing precision; NaN where a neuron is zero or not finite.

    Example:
        >>> from nero.diagnostics import turning_angle
        >>> before = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
        >>> after = torch.tensor([[1.0, 1e-6], [5.0, 5.0]])
        >>> turning_angle(before, after, fan_in_dims=(1,)).flatten().tolist()
        [9.99999...e-07, 0.0]
    """
    check_alike(before=before, after=after)
    check_fan_in_dims(fan_in_dims, before.ndim)
    dtype = sum_dtype(before)
    return _angle(before.to(dtype), after.to(dtype), fan_in_dims)


def neuron_rows(tensor: Tensor, neurons: Neurons) -> Tensor:
    """Return a parameter, or a rank's shard of one, as a matrix with one row per neuron."""
    fan_in_dims, view = neurons.fan_in_dims, neurons.view(tensor)
    neuron_dims = [d for d in range(view.ndim) if d not in fan_in_dims]
    return view.permute(*neuron_dims, *fan_in_dims).flatten(0, len(neuron_dims) - 1).flatten(1)


def measure(
    before: Tensor, after: Tensor, grad: Tensor | None, target: Tensor | float | None = None
) -> NeuronTurns:
    """Compare the rows of a parameter before and after a step.

    Works on blocks of rows, so that the float64 copies stay small. ``target`` is the norm that neurons
    should have: one number, one per neuron, or ``None`` if norms are free.
    """
    size = max(1, _BLOCK // max(before.shape[1], 1))
    blocks = zip(before.split(size), after.split(size), strict=True)
    sums = torch.cat([_measure_block(old, new) for old, new in blocks], dim=1)
    grad_size, targets = sums.new_zeros(len(before)), sums.new_full((len(before),), torch.nan)
    if grad is not None and grad.numel():
        grad_size = torch.linalg.vector_norm(grad, ord=torch.inf, dim=1).to(sums.dtype)
    if isinstance(target, float | int):
        targets.fill_(target)
    elif target is not None and target.numel() == targets.numel():
        targets = target.to(targets)
    return NeuronTurns._make([torch.ones_like(grad_size), *sums, grad_size, targets])


def with_shared_angles(sums: NeuronTurns) -> NeuronTurns:
    """Compute angles from the sums alone, for neurons whose fan-in is sharded.

    With d = w' - w the sine is sqrt(|w|^2 |d|^2 - (w.d)^2) and the cosine |w|^2 + w.d, both times |w| |w'|.
    If a step changes little but the length, the sine cancels, and angles have an error of about 1e-8 times
    the relative change.
    """
    sine = (sums.old_sq * sums.change_sq - sums.old_change.square()).clamp(min=0).sqrt()
    angle = torch.atan2(sine, sums.old_sq + sums.old_change)
    return sums._replace(angle=_where_defined(angle, sums.old_sq, sums.new_sq))


def _measure_block(old: Tensor, new: Tensor) -> Tensor:
    """Return the rows from ``old_sq`` to ``angle`` of `NeuronTurns`."""
    dtype, dot = sum_dtype(old), torch.linalg.vecdot
    u, v = old.to(dtype), new.to(dtype)
    change = v - u
    sums = dot(u, u), dot(v, v), dot(change, change), dot(u, change), v.sum(1)
    return torch.stack([*sums, _angle(u, v, (1,)).flatten()])


def _angle(u: Tensor, v: Tensor, dims: tuple[int, ...]) -> Tensor:
    old, new = (torch.linalg.vector_norm(x, dim=dims, keepdim=True) for x in (u, v))
    v = v * (old / new)
    apart = torch.linalg.vector_norm(u - v, dim=dims, keepdim=True)
    together = torch.linalg.vector_norm(u + v, dim=dims, keepdim=True)
    return _where_defined(2 * torch.atan2(apart, together), old, new)


def _where_defined(angle: Tensor, old: Tensor, new: Tensor) -> Tensor:
    has_direction = (old > 0) & (new > 0) & torch.isfinite(old) & torch.isfinite(new)
    return torch.where(has_direction, angle, torch.nan)
