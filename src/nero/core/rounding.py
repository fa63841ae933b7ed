"""Stochastic rounding: up or down at random, so that small updates survive on average.

A bfloat16 number has 8 bits of precision. Rounding to nearest loses most updates at a small learning rate;
rounding at random, in proportion to the distance, is right on average. The noise is a hash of
(seed, stream, step, position) rather than a stateful generator: a resumed run draws the same noise on any
device without saving anything, and a compiled step needs no side effect.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nero.core.arguments import check_alike
from nero.core.precision import working_dtype
from nero.core.spec import int64

_MULTIPLIERS = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)  # splitmix64's, as signed 64-bit numbers
_INCREMENT = -0x61C8864680B583EB
_BITS = 24  # what a float32 uniform can hold


def uniform_noise(
    like: Tensor,
    *,
    seed: int,
    stream: int,
    step: int | Tensor,
    offset: int = 0,
    strides: Sequence[int] | None = None,
    lane: int = 0,
) -> Tensor:
    """Return float32 numbers in [0, 1), determined only by the arguments and the position.

    Args:
        like: a tensor with the shape and device of the result.
        seed: chosen by the user.
        stream: one per parameter.
        step: number of the step.
        offset: position of the first element, if ``like`` is part of a larger tensor.
        strides: increment of the position along each dim; by default those of a contiguous tensor.
        lane: selects one of two independent numbers per position: 0 for weights, 1 for momentum buffers.

    Example:
        >>> from nero.core.rounding import uniform_noise
        >>> u = uniform_noise(torch.empty(10_000), seed=0, stream=0, step=1)
        >>> round(u.mean().item(), 1), 0 <= u.min() <= u.max() < 1
        (0.5, tensor(True))
    """
    if not isinstance(like, Tensor):
        raise TypeError(f"like must be a tensor, not {like!r}")
    start = _mix(_mix(torch.tensor(int64("seed", seed), device=like.device)) + stream)
    start = _mix(start + step)
    if strides is None:
        position = torch.arange(offset, offset + like.numel(), device=like.device)
        position = position.reshape(like.shape)
    else:
        position = torch.full((1,) * like.ndim, offset, device=like.device)
        for dim, (num, stride) in enumerate(zip(like.shape, strides, strict=True)):
            along = [-1 if d == dim else 1 for d in range(like.ndim)]
            position = position + (torch.arange(num, device=like.device) * stride).reshape(along)
    bits = _shift(_mix(start + position), 64 - _BITS * (lane + 1)) & ((1 << _BITS) - 1)
    return bits * 2.0**-_BITS


def round_stochastic(x: Tensor, dtype: torch.dtype, noise: Tensor) -> Tensor:
    """Round ``x`` to ``dtype``, up with a probability proportional to the distance from the value below.

    Args:
        x: values in float32 or float64.
        dtype: a narrower floating-point dtype.
        noise: independent uniform numbers in [0, 1).

    Note:
        If ``dtype`` is as precise as ``x``, this is a cast.

    Example:
        >>> from nero.core.rounding import round_stochastic
        >>> x = torch.full((10_000,), 1.001)  # 13% of the way from 1 to the next bfloat16
        >>> round_stochastic(x, torch.bfloat16, torch.rand(10_000)).float().unique()
        tensor([1.0000, 1.0078])
    """
    check_alike(x=x, noise=noise)
    working_dtype(dtype)  # raises for dtypes that are not real floating-point
    info = torch.finfo(dtype)
    if info.eps <= torch.finfo(x.dtype).eps:
        return x.to(dtype)
    # spacing of dtype around x: eps * 2^floor(log2|x|), or that of the subnormal numbers
    exponent = torch.frexp(x).exponent - 1
    exponent = exponent.clamp(min=round(math.log2(info.smallest_normal)))
    spacing = torch.ldexp(torch.full_like(x, info.eps), exponent)
    below = torch.floor(x / spacing)
    rounded = (below + (noise < x / spacing - below)) * spacing
    return torch.where(torch.isfinite(x), rounded, x).to(dtype)


def _mix(x: Tensor) -> Tensor:
    # The finalizer of splitmix64; int64 arithmetic wraps around.
    x = x + _INCREMENT
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        x = (x ^ _shift(x, shift)) * multiplier
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    # A logical shift to the right: torch's own keeps the sign.
    return (x >> bits) & ((1 << (64 - bits)) - 1)
