"""The memory layout of a parameter's neurons, for kernels that walk addresses instead of dims.

With dims sorted by decreasing stride, and adjacent dims of one kind merged, nearly every weight in use is
four nested loops:

    for a in range(outer):              neurons
        for f in range(fan_outer):      fan-in
            for b in range(inner):      neurons
                for k in range(fan_inner):      fan-in, contiguous

A Linear, a Conv (in any memory format) or an Embedding is ``a, k``: rows. A transposed Linear and Hugging
Face's Conv1D are ``f, b``: columns. A ConvTranspose is ``f, b, k``, with groups ``a, f, b, k``, and a stack
of experts stored as (expert, in, out) is ``a, f, b``.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from nero.core.update import Update, rounds_average, rounds_weight


def is_opaque(weight: Tensor) -> bool:
    """Whether a tensor belongs to a subclass whose memory is not that of a dense tensor."""
    return type(weight).__torch_dispatch__ is not Tensor.__torch_dispatch__


class Geometry(NamedTuple):
    """Sizes and strides, in elements, of the four loops; neuron (a, b) has number a*inner + b."""

    outer: int
    fan_outer: int
    inner: int
    fan_inner: int
    outer_stride: int
    fan_outer_stride: int
    inner_stride: int

    @property
    def is_rows(self) -> bool:
        """Whether every neuron is one contiguous piece."""
        return self.fan_outer == 1 and self.inner == 1

    def as_columns(self) -> "Geometry":
        """Return the same loops, with the loop over rows as the inner one."""
        if not self.is_rows:
            return self
        return Geometry(1, 1, self.outer, self.fan_inner, 0, 0, self.outer_stride)


def update_geometry(update: Update) -> Geometry | None:
    """Return the geometry of an update, or ``None`` if only the plain backend can walk it.

    That is the case if weight and gradient, or neurons and their state, have different memory orders, or if
    memory has gaps that four loops cannot describe.

    Example:
        >>> from nero.backends.geometry import geometry
        >>> geometry((3, 4), (4, 1), (1,))  # rows
        Geometry(outer=3, fan_outer=1, inner=1, fan_inner=4, ...)
        >>> geometry((3, 4), (1, 3), (1,))  # the same, stored transposed
        Geometry(outer=1, fan_outer=4, inner=3, fan_inner=1, ...)
    """
    weight, grad = update.weight, update.grad
    shape, strides = weight.shape, weight.stride()
    if weight.dtype != grad.dtype or not update.state["exp_avg_norm"].is_contiguous():
        return None
    for other in (grad, update.state.get("exp_avg", grad)):
        if strides != other.stride() and not _same_memory(shape, strides, other.stride()):
            return None
    return geometry(shape, strides, update.neurons.fan_in_dims)


def scatters_noise(update: Update) -> bool:
    """Whether noise drawn by memory offset, as in kernels, differs from noise drawn by position."""
    weight, places = update.weight, update.places
    is_rounded = rounds_weight(update) or rounds_average(update)
    if is_rounded and places is not None:  # a kernel only adds the start of a shard
        return not _same_memory(weight.shape, weight.stride(), places.strides)
    return is_rounded and not weight.is_contiguous()


@lru_cache(maxsize=4096)
def geometry(
    shape: tuple[int, ...], strides: tuple[int, ...], fan_in_dims: tuple[int, ...]
) -> Geometry | None:
    """Return the four loops over a tensor with this shape and these strides, if four are enough.

    Without fan-in dims every element is a neuron, and the tensor must be dense.
    """
    loops = _merged(shape, strides, frozenset(fan_in_dims))
    if loops is None:
        return None
    # Fill the pattern neuron, fan-in, neuron, fan-in from its end: the innermost loops matter most.
    filled: list[tuple[int, int]] = []
    for is_fan_in in (True, False, True, False):
        if loops and loops[-1][0] == is_fan_in:
            filled.append(loops.pop()[1:])
        else:
            filled.append((1, 0))
    if loops:
        return None
    (k, k_stride), (b, b_stride), (f, f_stride), (a, a_stride) = filled
    if f == 1 and a == 1:  # a single neuron loop is the outer one
        a, a_stride, b, b_stride = b, b_stride, 1, 0
    if not fan_in_dims and (b > 1 or (a > 1 and a_stride != 1)):
        return None  # elements are one dense loop
    innermost = k_stride if k > 1 else b_stride if b > 1 else 1
    if innermost != 1 and not (k == 1 and b == 1):
        return None
    return Geometry(a, f, b, k, a_stride, f_stride, b_stride)


def _merged(
    shape: tuple[int, ...], strides: tuple[int, ...], fan_in_dims: frozenset[int]
) -> list[tuple[bool, int, int]] | None:
    """Return (is fan-in, size, stride) from the outermost loop to the innermost, or ``None``."""
    dims = [d for d, n in enumerate(shape) if n != 1]
    in_memory = sorted(dims, key=lambda d: -strides[d])
    neuron_dims = [d for d in in_memory if d not in fan_in_dims]
    if neuron_dims != sorted(neuron_dims):
        return None  # their state has another memory order
    loops: list[tuple[bool, int, int]] = []
    for d in in_memory:
        is_fan_in = d in fan_in_dims
        if loops and loops[-1][0] == is_fan_in and loops[-1][2] == strides[d] * shape[d]:
            loops[-1] = (is_fan_in, loops[-1][1] * shape[d], strides[d])
        elif strides[d] == 0:
            return None  # expanded: several elements share one address
        else:
            loops.append((is_fan_in, shape[d], strides[d]))
    return loops


def _same_memory(shape: Sequence[int], ours: Sequence[int], theirs: Sequence[int]) -> bool:
    # The stride of a dim of size one is irrelevant.
    return all(n == 1 or a == b for n, a, b in zip(shape, ours, theirs, strict=True))
