"""What instructions compute, on numpy arrays with one entry per thread.

`COMPUTE` has one function per opcode: from an instruction's modifiers to the types of its operands and a
numpy function. A modifier that is not listed raises, as does an opcode that is not.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.emulated_gpu.approximate import EXACT
from tests.emulated_gpu.ptx import PtxError
from tests.emulated_gpu.ptx_types import (
    DTYPE,
    INT,
    UINT,
    canonical,
    flush,
    from_bf16,
    to_bf16,
    to_f16,
)

Mods = tuple[str, ...]
Compute = Callable[..., np.ndarray]
Meaning = tuple[tuple[str, ...], Compute]
_FLOATS = ("f32", "f64", "f32x2")


def type_of(mods: Mods, *allowed: str) -> str:
    """Return the type, which is the last modifier; raise if there are others than those allowed."""
    unknown = [each for each in mods[:-1] if each not in allowed]
    if unknown or not mods or mods[-1] not in DTYPE:
        raise PtxError(f"unknown modifiers: {'.'.join(unknown or mods)}")
    return mods[-1]


def _in_pairs(compute: Compute, type_: str) -> Compute:
    """Compute on both halves of what holds two numbers, such as ``f32x2`` since sm_100."""
    half, whole = DTYPE[type_.removesuffix("x2")], DTYPE[type_]

    def computed(*xs: np.ndarray) -> np.ndarray:
        halves = (np.ascontiguousarray(x).view(half).reshape(-1, 2) for x in xs)
        return np.ascontiguousarray(compute(*halves)).view(whole)[:, 0]

    return computed


def _plain(num: int, compute: Compute, *allowed: str) -> Callable[[Mods], Meaning]:
    def meaning(mods: Mods) -> Meaning:
        type_ = type_of(mods, *allowed)
        if type_[0] not in "bsu" and type_ != "pred":
            raise PtxError(f"unknown type: {type_}")
        return (type_,) * num, _in_pairs(compute, type_) if type_.endswith("x2") else compute

    return meaning


def _floats(num: int, compute: Compute, *allowed: str) -> Callable[[Mods], Meaning]:
    def meaning(mods: Mods) -> Meaning:
        type_ = type_of(mods, "rn", "ftz", *allowed)
        if type_ not in _FLOATS or ("ftz" in mods and type_ == "f64"):
            raise PtxError(f"unknown type: {'.'.join(mods)}")

        def computed(*xs: np.ndarray) -> np.ndarray:
            if "ftz" in mods:
                xs = tuple(map(flush, xs))
            found = canonical(compute(*xs))
            return flush(found) if "ftz" in mods else found

        return (type_,) * num, _in_pairs(computed, type_) if type_ == "f32x2" else computed

    return meaning


def _either(
    floats: Callable[[Mods], Meaning], integers: Callable[[Mods], Meaning]
) -> Callable[[Mods], Meaning]:
    return lambda mods: (floats if mods[-1] in _FLOATS else integers)(mods)


# ---- integers


def _shift(*, is_left: bool) -> Callable[[Mods], Meaning]:
    def meaning(mods: Mods) -> Meaning:
        type_ = type_of(mods)
        bits = int(type_[1:])

        def compute(x: np.ndarray, by: np.ndarray) -> np.ndarray:
            amount = np.minimum(by, np.uint32(bits - 1)).astype(x.dtype)
            found = (x << amount) if is_left else (x >> amount)
            fill = np.where(x < 0, -1, 0).astype(x.dtype) if type_[0] == "s" else np.zeros_like(x)
            return np.where(by >= bits, fill, found)

        return (type_, "u32"), compute

    return meaning


def _mul(mods: Mods) -> Meaning:
    if mods[-1] in _FLOATS:
        return _floats(2, np.multiply)(mods)
    type_ = type_of(mods, "lo", "wide", "hi")
    if "lo" in mods:
        return (type_, type_), lambda a, b: a * b
    bits = int(type_[1:])
    if bits > 32:
        raise PtxError("the upper half of a product of 64 bits")
    wide = (INT if type_[0] == "s" else UINT)[2 * bits]
    if "wide" in mods:
        return (type_, type_), lambda a, b: a.astype(wide) * b.astype(wide)
    narrow = DTYPE[type_]
    return (type_, type_), lambda a, b: ((a.astype(wide) * b.astype(wide)) >> wide(bits)).astype(
        narrow
    )


def _mad(mods: Mods) -> Meaning:
    if "lo" not in mods and "wide" not in mods:
        raise PtxError(f"unknown modifiers: {'.'.join(mods)}")
    (type_, _), product = _mul(mods)
    third = type_ if "lo" in mods else f"{type_[0]}{2 * int(type_[1:])}"
    return (type_, type_, third), lambda a, b, c: product(a, b) + c


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Round toward zero; a GPU returns all ones for a division by zero, and does not trap."""
    is_zero = b == 0
    b = np.where(is_zero, np.ones_like(b), b)
    if a.dtype.kind == "i":
        unsigned = (
            f"u{a.itemsize}"  # for the smallest number, whose absolute value no signed one holds
        )
        size = (np.abs(a).view(unsigned) // np.abs(b).view(unsigned)).view(a.dtype)
        found = np.where((a < 0) != (b < 0), -size, size)
    else:
        found = a // b
    return np.where(is_zero, np.array(-1).astype(a.dtype), found).astype(a.dtype)


def _bfe(mods: Mods) -> Meaning:
    type_ = type_of(mods)
    bits = int(type_[1:])
    (_, shl), (_, shr) = (_shift(is_left=is_left)(mods) for is_left in (True, False))

    def compute(x: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        start, length = (each.astype(np.int64) & 255 for each in (start, length))
        num_taken = np.clip(bits - start, 0, length)
        # The field's last bit becomes the word's, which is the sign of what is shifted back.
        found = shr(shl(x, np.maximum(bits - start - num_taken, 0)), bits - num_taken)
        return np.where(length == 0, x.dtype.type(0), found)

    return (type_, "u32", "u32"), compute


def _prmt(mods: Mods) -> Meaning:
    type_of(mods)

    def compute(a: np.ndarray, b: np.ndarray, how: np.ndarray) -> np.ndarray:
        both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
        found = np.zeros(np.broadcast(a, b, how).shape, np.uint32)
        for i in range(4):
            pick = (how >> np.uint32(4 * i)) & np.uint32(15)
            shift = (pick & np.uint32(7)).astype(np.uint64) * np.uint64(8)
            byte = (both >> shift) & np.uint64(255)
            sign = np.where(byte >> np.uint64(7), np.uint64(255), np.uint64(0))
            byte = np.where(pick >> np.uint32(3), sign, byte)
            found |= byte.astype(np.uint32) << np.uint32(8 * i)
        return found

    return ("b32", "b32", "b32"), compute


# ---- floating-point numbers

_LIBM = ctypes.CDLL("libm.so.6")
_LIBM.fma.restype, _LIBM.fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3
_fma64 = np.frompyfunc(_LIBM.fma, 3, 1)


def _fma32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    # The product is exact in float64; the sum is rounded to odd, so that rounding it again is harmless.
    p, c = a.astype(np.float64) * b, c.astype(np.float64)
    s = p + c
    t = s - p
    error = (p - (s - t)) + (c - t)
    is_odd = (s.view(np.int64) & 1).astype(bool)
    toward = np.where(error > 0, np.inf, -np.inf)
    s = np.where((error != 0) & ~is_odd & np.isfinite(s), np.nextafter(s, toward), s)
    return s.astype(np.float32)


def _fma(mods: Mods) -> Meaning:
    if mods[-1] == "f64":
        return _floats(3, lambda a, b, c: np.asarray(_fma64(a, b, c), np.float64))(mods)
    return _floats(3, _fma32)(mods)


def _extreme(*, is_min: bool) -> Callable[[Mods], Meaning]:
    ignore_nan, spread_nan = (np.fmin, np.minimum) if is_min else (np.fmax, np.maximum)

    def of_floats(mods: Mods) -> Meaning:
        pick = spread_nan if "NaN" in mods else ignore_nan

        def compute(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            # -0 is smaller than +0, which numpy takes for equal.
            sign = np.signbit(a) | np.signbit(b) if is_min else np.signbit(a) & np.signbit(b)
            zero = np.where(sign, -0.0, 0.0).astype(a.dtype)
            return np.where((a == 0) & (b == 0), zero, pick(a, b))

        return _floats(2, compute, "NaN")(mods)

    return _either(of_floats, _plain(2, np.minimum if is_min else np.maximum))


_COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def _setp(mods: Mods) -> Meaning:
    how, type_ = mods[0], type_of(mods[1:], "ftz", "and", "or")
    is_float = type_[0] == "f"
    # With u at the end, a comparison with NaN is true.
    is_unordered = is_float and len(how) == 3 and how.endswith("u")
    compare = _COMPARE.get(how[:2] if is_unordered else _UNSIGNED.get(how, how))
    if compare is None and not (is_float and how in ("num", "nan")):
        raise PtxError(f"unknown comparison: {how}")

    def compute(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if "ftz" in mods:
            a, b = flush(a), flush(b)
        if not is_float:
            return compare(a, b)
        is_nan = np.isnan(a) | np.isnan(b)
        if compare is None:
            return is_nan if how == "nan" else ~is_nan
        return (compare(a, b) | is_nan) if is_unordered else (compare(a, b) & ~is_nan)

    if "and" in mods or "or" in mods:
        join = np.logical_and if "and" in mods else np.logical_or
        return (type_, type_, "pred"), lambda a, b, c: join(compute(a, b), c)
    return (type_, type_), compute


def _selp(mods: Mods) -> Meaning:
    type_ = type_of(mods)
    return (type_, type_, "pred"), lambda a, b, p: np.where(p, a, b)


_ROUND = {"rni": np.rint, "rmi": np.floor, "rpi": np.ceil, "rzi": np.trunc}


def _cvt(mods: Mods) -> Meaning:
    to, source = mods[-2], type_of(mods[-1:])
    unknown = {*mods[:-2]} - {"rn", "ftz", *_ROUND}
    if unknown or to not in DTYPE:
        raise PtxError(f"unknown modifiers: {'.'.join(mods)}")
    if to in ("bf16x2", "f16x2"):  # two numbers, the first into the upper half
        narrow = to_bf16 if to == "bf16x2" else lambda x: to_f16(x).view(np.uint16)
        return (
            source,
            source,
        ), lambda a, b: (narrow(a).astype(np.uint32) << np.uint32(16)) | narrow(b)
    how = next((_ROUND[each] for each in mods if each in _ROUND), None)
    is_flushed = "ftz" in mods

    def compute(x: np.ndarray) -> np.ndarray:
        x = from_bf16(x) if source == "bf16" else x
        if is_flushed and x.dtype == np.float32:
            x = flush(x)
        x = x if how is None else how(x)
        if to == "bf16":
            return to_bf16(x)
        if to == "f16":
            return to_f16(x)
        if x.dtype.kind == "f" and to[0] in "su":
            return _saturated(x, DTYPE[to])
        found = x.astype(DTYPE[to])
        found = flush(found) if is_flushed and found.dtype == np.float32 else found
        return canonical(found)

    return (source,), compute


def _saturated(x: np.ndarray, dtype: Any) -> np.ndarray:
    """Convert to integers: what is out of range becomes the nearest, and NaN zero."""
    limits = np.iinfo(dtype)
    x = np.where(np.isnan(x), 0, x.astype(np.float64))
    found = np.clip(x, float(limits.min), float(limits.max)).astype(dtype)
    found = np.where(x <= float(limits.min), np.array(limits.min, dtype), found)
    return np.where(x >= float(limits.max), np.array(limits.max, dtype), found)


def _exact(num: int, name: str) -> Callable[[Mods], Meaning]:
    """Round the exact result, which is right for ``.rn``; `Approximation` moves that of ``.approx``.

    Rounding a square root or a quotient to float64 first does not change its float32.
    """

    def compute(*xs: np.ndarray) -> np.ndarray:
        return EXACT[name](*(x.astype(np.float64) for x in xs)).astype(xs[0].dtype)

    return _floats(num, compute, "approx", "full")


COMPUTE: dict[str, Callable[[Mods], Meaning]] = {
    "add": _either(_floats(2, np.add), _plain(2, np.add)),
    "sub": _either(_floats(2, np.subtract), _plain(2, np.subtract)),
    "mul": _mul,
    "mad": _mad,
    "fma": _fma,
    "div": _either(_exact(2, "div"), _plain(2, _quotient)),
    "rem": _plain(2, lambda a, b: a - _quotient(a, b) * b),
    "abs": _either(_floats(1, np.abs), _plain(1, np.abs)),
    "neg": _either(_floats(1, np.negative), _plain(1, np.negative)),
    "min": _extreme(is_min=True),
    "max": _extreme(is_min=False),
    "sqrt": _exact(1, "sqrt"),
    "rsqrt": _exact(1, "rsqrt"),
    "rcp": _exact(1, "rcp"),
    "ex2": _exact(1, "ex2"),
    "and": _plain(2, np.bitwise_and),
    "or": _plain(2, np.bitwise_or),
    "xor": _plain(2, np.bitwise_xor),
    "not": _plain(1, np.invert),
    "shl": _shift(is_left=True),
    "shr": _shift(is_left=False),
    "popc": _plain(1, lambda x: np.bitwise_count(x).astype(np.uint32)),
    "bfe": _bfe,
    "prmt": _prmt,
    "setp": _setp,
    "selp": _selp,
    "cvt": _cvt,
}
