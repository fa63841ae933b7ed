"""Track which dims of a parameter the dims of a derived tensor run along.

A view may split a dim, merge two, swap them or drop one. `through_view` reads that from strides: a dim of
length n and stride t covers the addresses between t and n * t of a contiguous tensor.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from torch import Tensor


class Axis(NamedTuple):
    """One factor of a tensor's dim."""

    dims: frozenset[int]
    """The parameter's dims that it runs along."""
    size: int


Axes: TypeAlias = tuple[tuple[Axis, ...], ...]
"""The factors of each dim of a tensor, outer first; empty if the dim does not come from the parameter."""


def axes_of(shape: Sequence[int]) -> Axes:
    """Return the axes of a parameter itself."""
    return tuple((Axis(frozenset({d}), n),) if n > 1 else () for d, n in enumerate(shape))


def dims_of(axes: Iterable[tuple[Axis, ...]]) -> frozenset[int]:
    """Return all dims of the parameter that these dims of a tensor run along."""
    return frozenset(dim for factors in axes for axis in factors for dim in axis.dims)


def broadcast(axes: Axes, ndim: int) -> Axes:
    """Return the axes of a tensor broadcast to ``ndim`` dims."""
    return ((),) * (ndim - len(axes)) + axes


def resized(axes: Axes, shape: Sequence[int]) -> Axes:
    """Return the axes of a tensor padded, repeated, sliced or resampled to ``shape``."""
    return tuple(_fit(list(factors), n) for factors, n in zip(axes, shape, strict=True))


def through_view(axes: Axes, shape: Sequence[int], view: Tensor) -> Axes:
    """Return the axes of a view of a contiguous tensor with this shape.

    Example:
        >>> from nero.layout.observation.axes import axes_of, dims_of, through_view
        >>> weight = torch.empty(6, 4, device="meta")
        >>> heads = weight.view(2, 3, 4).transpose(1, 2)
        >>> [sorted(dims_of([dim])) for dim in through_view(axes_of(weight.shape), weight.shape, heads)]
        [[0], [1], [0]]
    """
    ranges: list[tuple[int, int, Axis]] = []  # start and end address of each axis, inner first
    step = 1
    for factors, n in zip(reversed(axes), reversed(shape), strict=True):
        for axis in reversed(factors or (Axis(frozenset(), n),)):
            ranges.append((step, step * axis.size, axis))
            step *= axis.size
    view_axes = []
    for n, stride in zip(view.shape, view.stride(), strict=True):
        covered: list[Axis] = []
        if n > 1:  # an expanded dim has stride zero and covers nothing
            for low, high, axis in ranges:
                first, last = max(low, stride), min(high, stride * n)
                if last > first and (last // first > 1 or low <= stride < high):
                    covered.insert(0, Axis(axis.dims, max(last // first, 1)))
        view_axes.append(_fit(covered, n))
    return tuple(view_axes)


def _fit(factors: list[Axis], size: int) -> tuple[Axis, ...]:
    """Merge a dim's factors into one if their sizes do not multiply to its size."""
    dims = dims_of([tuple(factors)])
    if size == 1 or not dims:
        return ()
    if math.prod(axis.size for axis in factors) == size:
        return tuple(factors)
    return (Axis(dims, size),)
