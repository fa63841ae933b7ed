"""Checks of numbers and tensors, with messages that name the argument."""

import sys
from numbers import Real
from typing import Any

from torch import Tensor


def real_number(name: str, value: Any) -> Any:
    """Read a number that fits into float64; strings and bools are refused.

    Example:
        >>> from nero.core.arguments import real_number
        >>> real_number("lr", "0.01")
        Traceback (most recent call last):
        TypeError: lr must be a number, not '0.01': use float(...), and 1.0e-3 in YAML, not 1e-3
    """
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | Real):
        hint = ": use float(...), and 1.0e-3 in YAML, not 1e-3" if isinstance(value, str) else ""
        raise TypeError(f"{name} must be a number, not {_shown(value)}{hint}")
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise ValueError(
            f"{name} is too large: it has {value.bit_length():,} bits, and must fit into 1,024"
        )
    return value


def whole_number(name: str, value: Any, *, smallest: int) -> int:
    """Read an integer of at least ``smallest``.

    Example:
        >>> from nero.core.arguments import whole_number
        >>> whole_number("num_steps", 0, smallest=1)
        Traceback (most recent call last):
        ValueError: num_steps must be a whole number from 1 on, but is 0
    """
    number = real_number(name, value)
    if not number >= smallest or number % 1:  # NaN is neither
        raise ValueError(f"{name} must be a whole number from {smallest} on, but is {value!r}")
    return int(number)


def check_real(name: str, tensor: Any) -> None:
    """Raise unless ``tensor`` is a tensor of real floating-point numbers."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor, not {_shown(tensor)}")
    if not tensor.is_floating_point():
        raise TypeError(
            f"{name} is {tensor.dtype}; only real floating-point parameters are supported: convert it, or "
            "leave it out"
        )


def check_alike(**tensors: Any) -> None:
    """Raise unless all are real floating-point tensors of one shape."""
    (first, shape), *_ = ((name, getattr(tensor, "shape", ())) for name, tensor in tensors.items())
    for name, tensor in tensors.items():
        check_real(name, tensor)
        if tensor.shape != shape:
            raise ValueError(
                f"{name} has the shape {tuple(tensor.shape)}, but must have that of {first}, {tuple(shape)}"
            )


def check_fan_in_dims(fan_in_dims: Any, ndim: int) -> None:
    """Raise unless these are one or more different dims of a tensor with ``ndim`` dims.

    Example:
        >>> from nero.core.arguments import check_fan_in_dims
        >>> check_fan_in_dims((2,), ndim=2)
        Traceback (most recent call last):
        ValueError: fan_in_dims (2,) must be different dims of a tensor that has 2, from 0 to 1
    """
    is_dims = isinstance(fan_in_dims, tuple | list) and len(fan_in_dims) > 0
    if not is_dims or not all(isinstance(d, int) for d in fan_in_dims):
        raise ValueError(
            f"fan_in_dims must be the dims of one neuron, such as (1,), not {_shown(fan_in_dims)}"
        )
    in_range = all(-ndim <= d < ndim for d in fan_in_dims)
    if not in_range or len({d % ndim for d in fan_in_dims}) < len(fan_in_dims):
        raise ValueError(
            f"fan_in_dims {tuple(fan_in_dims)} must be different dims of a tensor that has {ndim}, from 0 "
            f"to {ndim - 1}"
        )


def kind_of(value: Any) -> str:
    """Name a value's type for messages."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else kind_of(value)
