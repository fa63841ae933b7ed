"""Which dtype each part of the arithmetic runs in.

Three numbers meet in an update: the sum over a neuron's fan-in, the coefficients that follow
from the sums, and the weights. Sums are taken in float64, so that any order of summation (any
sharding of the fan-in, any block size) gives the same coefficients. Elementwise work and state
run in float32, or in float64 for float64 weights.
"""

import torch
from torch import Tensor

# Devices without float64. Sums fall back to float32 there.
_NO_FLOAT64 = frozenset({"mps"})


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype for state and elementwise arithmetic of a parameter of ``dtype``.

    Example:
        >>> working_dtype(torch.bfloat16), working_dtype(torch.float64)
        (torch.float32, torch.float64)
    """
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype must be that of real floating-point numbers, not {dtype!r}")
    return torch.float64 if dtype == torch.float64 else torch.float32


def dtype_name(dtype: torch.dtype) -> str:
    """Return what Triton, JSON and people call a dtype.

    Example:
        >>> dtype_name(torch.bfloat16)
        'bfloat16'
    """
    return str(dtype).removeprefix("torch.")


def sum_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype in which sums over ``tensor`` are accumulated.

    Example:
        >>> sum_dtype(torch.zeros(3, dtype=torch.float16))
        torch.float64
    """
    return torch.float32 if tensor.device.type in _NO_FLOAT64 else torch.float64


def balance_tolerance(dtype: torch.dtype) -> float:
    """Return how far from mean zero and radius one a neuron stored in ``dtype`` may be.

    Rounding a row to ``dtype`` moves its norm, and its sum over the root of the fan-in, by at most
    eps/2; an update in working precision adds about three more roundings. Anything within this
    tolerance is as balanced as the dtype can say, and is left as it is, to the last bit.

    Example:
        >>> balance_tolerance(torch.float32) < 5e-7
        True
    """
    working = torch.finfo(working_dtype(dtype))  # refuses what is no dtype of real numbers
    return torch.finfo(dtype).eps + 3 * working.eps


def or_one(x: Tensor) -> Tensor:
    """Return a denominator that is never zero; what it divides is zero then, or masked elsewhere.

    Example:
        >>> from nero.core.precision import or_one
        >>> or_one(torch.tensor([0.0, 0.5]))
        tensor([1.0000, 0.5000])
    """
    return torch.where(x != 0, x, 1.0)


def finite_part(x: Tensor) -> Tensor:
    """Return ``x`` with zeros in the place of NaN and inf.

    Example:
        >>> from nero.core.precision import finite_part
        >>> finite_part(torch.tensor([0.5, -float("inf"), float("nan")]))
        tensor([0.5000, 0.0000, 0.0000])
    """
    return torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)
