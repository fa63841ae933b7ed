"""Which dims of a parameter each dim of a tensor walks.

A view may split a dim, merge two, swap them or drop one. `through_view` reads that from strides: a dim of
length n and stride t walks the addresses between t and n * t of a contiguous tensor.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from torch import Tensor


class Axis(NamedTuple):
    """A stretch of one dim of a tensor."""

    dims: frozenset[int]
    """The dims of the parameter that it walks."""
    size: int


Axes: TypeAlias = tuple[tuple[Axis, ...], ...]
"""For each dim of a tensor its stretches, outer first; empty if it does not come from the parameter."""


def axes_of(shape: Sequence[int]) -> Axes:
    """Return the axes of a parameter itself."""
    return tuple((Axis(frozenset({d}), n),) if n > 1 else () for d, n in enumerate(shape))


def dims_of(axes: Iterable[tuple[Axis, ...]]) -> frozenset[int]:
    """Return all dims of the parameter that these dims of a tensor walk.

    Example:
        >>> from nero.layout.observation.axes import axes_of, dims_of
        >>> sorted(dims_of(axes_of((3, 1, 4))))
        [0, 2]
    """
    return frozenset(dim for stretches in axes for axis in stretches for dim in axis.dims)


def broadcast(axes: Axes, ndim: int) -> Axes:
    """Return the axes of a tensor that is broadcast to more dims."""
    return ((),) * (ndim - len(axes)) + axes


def resized(axes: Axes, shape: Sequence[int]) -> Axes:
    """Return the axes of a tensor whose dims were padded, repeated, sliced or resampled to ``shape``."""
    return tuple(_fit(list(stretches), n) for stretches, n in zip(axes, shape, strict=True))


def through_view(axes: Axes, shape: Sequence[int], view: Tensor) -> Axes:
    """Return the axes of a view of a contiguous tensor of this shape.

    Example:
        >>> from nero.layout.observation.axes import axes_of, dims_of, through_view
        >>> weight = torch.empty(6, 4, device="meta")
        >>> heads = weight.view(2, 3, 4).transpose(1, 2)
        >>> [sorted(dims_of([dim])) for dim in through_view(axes_of(weight.shape), weight.shape, heads)]
        [[0], [1], [0]]
    """
    stretches: list[tuple[int, int, Axis]] = []  # addresses from and to, inner first
    step = 1
    for of_dim, n in zip(reversed(axes), reversed(shape), strict=True):
        for axis in reversed(of_dim or (Axis(frozenset(), n),)):
            stretches.append((step, step * axis.size, axis))
            step *= axis.size
    after = []
    for n, stride in zip(view.shape, view.stride(), strict=True):
        walked: list[Axis] = []
        if n > 1:  # an expanded dim has stride zero and walks nothing
            for low, high, axis in stretches:
                first, last = max(low, stride), min(high, stride * n)
                if last > first and (last // first > 1 or low <= stride < high):
                    walked.insert(0, Axis(axis.dims, max(last // first, 1)))
        after.append(_fit(walked, n))
    return tuple(after)


def _fit(stretches: list[Axis], size: int) -> tuple[Axis, ...]:
    """Make stretches cover a dim: merge them into one if their sizes do not multiply to its size."""
    dims = dims_of([tuple(stretches)])
    if size == 1 or not dims:
        return ()
    if math.prod(axis.size for axis in stretches) == size:
        return tuple(stretches)
    return (Axis(dims, size),)
