"""The types of PTX as numpy knows them, and rounding to those that it does not know."""

from typing import Any

import numpy as np

UINT: dict[int, Any] = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
INT: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
FLOAT: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}
DTYPE: dict[str, Any] = {
    **{f"s{bits}": INT[bits] for bits in INT},
    **{f"u{bits}": UINT[bits] for bits in INT},
    **{f"b{bits}": UINT[bits] for bits in INT},
    **{f"f{bits}": FLOAT[bits] for bits in FLOAT},
    "f32x2": np.uint64, "s16x2": np.uint32, "u16x2": np.uint32,
    "bf16": np.uint16, "bf16x2": np.uint32, "f16x2": np.uint32, "pred": np.bool_,
}  # fmt: skip
# What arithmetic returns for NaN, whatever the sign and payload of its operands. PTX documents these bits
# for float32 and leaves them open for float64; numpy's depend on the processor.
CANONICAL_NAN = {
    np.dtype(np.float32): np.array([0x7FFFFFFF], np.uint32).view(np.float32),
    np.dtype(np.float64): np.array([0x7FFFFFFFFFFFFFFF], np.uint64).view(np.float64),
}


def bits_of(type_: str) -> int:
    """Return the width of a type in bits."""
    return 1 if type_ == "pred" else DTYPE[type_]().itemsize * 8


def canonical(x: np.ndarray) -> np.ndarray:
    """Replace each NaN by the canonical one; numpy keeps or invents payloads and signs."""
    is_nan = np.isnan(x)
    return np.where(is_nan, CANONICAL_NAN[x.dtype], x) if is_nan.any() else x


def flush(x: np.ndarray) -> np.ndarray:
    """Return zero, with its sign, for subnormal numbers."""
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """Widen bfloat16, given as bits, to float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """Round float32 to the nearest bfloat16, ties to even; return its bits."""
    bits = x.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(x), np.uint32(0x7FFF), rounded).astype(np.uint16)


def to_f16(x: np.ndarray) -> np.ndarray:
    """Round to the nearest float16, ties to even; NaN becomes the canonical one."""
    found = x.astype(np.float16)
    return np.where(np.isnan(x), np.array([0x7FFF], np.uint16).view(np.float16), found)
