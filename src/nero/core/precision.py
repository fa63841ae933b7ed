"""The dtype of each part of the arithmetic.

An update has sums over a neuron's fan-in, coefficients that follow from the sums, and weights. Sums are
accumulated in float64, so that any order of summation (any sharding of the fan-in, any block size) gives
the same coefficients. Elementwise work and state use float32, or float64 for float64 weights.
"""

import torch
from torch import Tensor

# Devices without float64. Sums fall back to float32 there, and on those XPUs that have none.
_NO_FLOAT64 = frozenset({"mps"})


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype for state and elementwise arithmetic of a parameter of ``dtype``.

    Example:
        >>> working_dtype(torch.bfloat16), working_dtype(torch.float64)
        (torch.float32, torch.float64)
    """
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype must be a real floating-point dtype, not {dtype!r}")
    return torch.float64 if dtype == torch.float64 else torch.float32


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name without ``torch.``, as in Triton and JSON."""
    return str(dtype).removeprefix("torch.")


def sum_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype in which sums over ``tensor`` are accumulated.

    Example:
        >>> sum_dtype(torch.zeros(3, dtype=torch.float16))
        torch.float64
    """
    return torch.float64 if _has_float64(tensor.device) else torch.float32


def _has_float64(device: torch.device) -> bool:
    if device.type == "xpu":
        return bool(torch.xpu.get_device_properties(device).has_fp64)
    return device.type not in _NO_FLOAT64


def balance_tolerance(dtype: torch.dtype) -> float:
    """Return how far from mean zero and radius one a neuron stored in ``dtype`` may be.

    Rounding a row to ``dtype`` changes its norm, and its sum over the root of the fan-in, by at most
    eps/2; an update in working precision adds about three more roundings. A neuron within this tolerance
    is as balanced as the dtype allows, and stays bit-identical.

    Example:
        >>> balance_tolerance(torch.float32) < 5e-7
        True
    """
    working = torch.finfo(working_dtype(dtype))  # raises for other dtypes
    return torch.finfo(dtype).eps + 3 * working.eps


def or_one(x: Tensor) -> Tensor:
    """Replace zeros with ones in a denominator whose numerator is then zero or masked."""
    return torch.where(x != 0, x, 1.0)


def finite_part(x: Tensor) -> Tensor:
    """Return ``x`` with NaN and inf replaced by zeros."""
    return torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)
