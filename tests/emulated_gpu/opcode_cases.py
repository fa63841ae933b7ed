"""Every arithmetic instruction, with what numpy and exact fractions make of it."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np

_RANDOM = np.random.default_rng(0)
_TINY, _HUGE = 1e-40, 3e38  # a subnormal float32, and one whose double overflows


def floats(num: int, dtype: Any = np.float32) -> list[np.ndarray]:
    """Return combinations of special numbers, and random ones of all sizes."""
    special = [0.0, -0.0, 1.0, -1.5, _TINY, -_TINY, _HUGE, np.inf, -np.inf, np.nan, -np.nan]
    special += [0.5, 2.5, 3.5, 1e9, -3e9, 1e19, -1e19]
    if num == 3:
        special = special[:6] + special[7:10]
    sizes = _RANDOM.uniform(-30, 30, (100, num))
    random = _RANDOM.standard_normal((100, num)) * 2.0**sizes
    with np.errstate(all="ignore"):
        rows = np.concatenate([np.array([*product(special, repeat=num)]), random]).astype(dtype)
    return [np.ascontiguousarray(column) for column in rows.T]


def integers(num: int, dtype: Any) -> list[np.ndarray]:
    """Return combinations of the smallest, largest and usual integers, and random ones."""
    limits = np.iinfo(dtype)
    special = [0, 1, 2, 5, 31, 63, limits.max, limits.min, limits.max - 1, limits.max // 3]
    special += [-1, -7, -(2**15)] if limits.min else [limits.max - 7]
    special = [each for each in special if limits.min <= each <= limits.max]
    rows = np.array([*product(special, repeat=num)][:400], dtype)
    random = _RANDOM.integers(limits.min, limits.max, (100, num), dtype, endpoint=True)
    return [np.ascontiguousarray(column) for column in np.concatenate([rows, random]).T]


class Case(NamedTuple):
    """An instruction, its operands, and what it must return."""

    text: str
    dtype: Any
    operands: list[np.ndarray]
    expected: Callable[..., Any]


def _each(function: Callable[..., Any], dtype: Any) -> Callable[..., np.ndarray]:
    """Call a function for each thread, with Python's numbers, which have no width."""

    def expected(*operands: np.ndarray) -> np.ndarray:
        rows = zip(*(operand.tolist() for operand in operands), strict=True)
        found = [function(*row) for row in rows]
        if np.issubdtype(dtype, np.integer):
            bits = 8 * np.dtype(dtype).itemsize
            found = [each % 2**bits for each in found]
            return np.array(found, f"u{bits // 8}").view(dtype)
        return np.array(found, dtype)

    return expected


def _toward_zero(a: int, b: int) -> int:
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _nearest_fma(a: float, b: float, c: float) -> float:
    """Round a * b + c once, to float32."""
    if not np.isfinite([a, b, c]).all() or (a * b == 0 and c == 0):
        with np.errstate(all="ignore"):
            return float(np.float64(a) * np.float64(b) + np.float64(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return 0.0
    with np.errstate(all="ignore"):
        guess = np.float32(float(exact))
    if not np.isfinite(guess):
        return float(guess)
    near = [np.nextafter(guess, np.float32(side)) for side in (-np.inf, np.inf)]
    near = [guess, *(each for each in near if np.isfinite(each))]
    return float(
        min(near, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.int32)) & 1))
    )


def _exact_fma(a: float, b: float, c: float) -> float:
    if not np.isfinite([a, b, c]).all() or (a * b == 0 and c == 0):
        with np.errstate(all="ignore"):
            return float(np.float64(a) * np.float64(b) + np.float64(c))
    try:
        return float(Fraction(a) * Fraction(b) + Fraction(c)) or 0.0
    except OverflowError:
        return np.inf if Fraction(a) * Fraction(b) + Fraction(c) > 0 else -np.inf


def _arithmetic() -> list[Case]:
    found = []
    numpy_ops = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
    for op, function in numpy_ops.items():
        for bits, dtype in ((32, np.float32), (64, np.float64)):
            for rounding in (".rn", ""):
                found.append(
                    Case(
                        f"{op}{rounding}.f{bits} {{0}}, {{1}}, {{2}}",
                        dtype,
                        floats(2, dtype),
                        function,
                    )
                )
        pairs = [np.ascontiguousarray(x[: len(x) // 2 * 2]).view(np.uint64) for x in floats(2)]
        found.append(
            Case(f"{op}.rn.f32x2 {{0}}, {{1}}, {{2}}", np.uint64, pairs, _halves(function))
        )
    python_ops = {
        "add": int.__add__,
        "sub": int.__sub__,
        "div": _toward_zero,
        "min": min,
        "max": max,
    }
    python_ops["rem"] = lambda a, b: a - _toward_zero(a, b) * b
    for op, function in python_ops.items():
        for name in ("s32", "s64", "u32", "u64"):
            dtype = _dtype(name)
            compute = _each(function, dtype)
            found.append(
                Case(f"{op}.{name} {{0}}, {{1}}, {{2}}", dtype, integers(2, dtype), compute)
            )
    for op, function in (("add", np.add), ("min", np.minimum), ("max", np.maximum)):
        for name in ("s16", "u16"):
            halves = [np.ascontiguousarray(x[: len(x) // 2 * 2]) for x in integers(2, _dtype(name))]
            operands = [x.view(np.uint32) for x in halves]
            compute = _halves(function, _dtype(name), np.uint32)
            found.append(Case(f"{op}.{name}x2 {{0}}, {{1}}, {{2}}", np.uint32, operands, compute))
    for name in ("s32", "s64"):
        dtype, product_ = _dtype(name), int.__mul__
        found.append(
            Case(
                f"mul.lo.{name} {{0}}, {{1}}, {{2}}",
                dtype,
                integers(2, dtype),
                _each(product_, dtype),
            )
        )
        mad = _each(lambda a, b, c: a * b + c, dtype)
        found.append(
            Case(f"mad.lo.{name} {{0}}, {{1}}, {{2}}, {{3}}", dtype, integers(3, dtype), mad)
        )
        found.append(
            Case(f"neg.{name} {{0}}, {{1}}", dtype, integers(1, dtype), _each(int.__neg__, dtype))
        )
        found.append(Case(f"abs.{name} {{0}}, {{1}}", dtype, integers(1, dtype), _each(abs, dtype)))
    for name, wide in (("s32", np.int64), ("u32", np.uint64)):
        dtype = _dtype(name)
        narrow, third = integers(3, dtype), integers(1, wide)[0]
        high = _each(lambda a, b: (a * b) >> 32, dtype)
        found.append(Case(f"mul.hi.{name} {{0}}, {{1}}, {{2}}", dtype, narrow[:2], high))
        found.append(
            Case(f"mul.wide.{name} {{0}}, {{1}}, {{2}}", wide, narrow[:2], _each(int.__mul__, wide))
        )
        operands = [*narrow[:2], np.resize(third, len(narrow[0]))]
        mad = _each(lambda a, b, c: a * b + c, wide)
        found.append(Case(f"mad.wide.{name} {{0}}, {{1}}, {{2}}, {{3}}", wide, operands, mad))
    for bits, dtype, compute in ((32, np.float32, _nearest_fma), (64, np.float64, _exact_fma)):
        operands = floats(3, dtype)
        text = f"fma.rn.f{bits} {{0}}, {{1}}, {{2}}, {{3}}"
        found.append(Case(text, dtype, operands, _each(compute, dtype)))
        for op, function in (("neg", np.negative), ("abs", np.abs)):
            found.append(Case(f"{op}.f{bits} {{0}}, {{1}}", dtype, floats(1, dtype), function))
        found.append(Case(f"sqrt.rn.f{bits} {{0}}, {{1}}", dtype, floats(1, dtype), np.sqrt))
        found.append(
            Case(f"div.rn.f{bits} {{0}}, {{1}}, {{2}}", dtype, floats(2, dtype), np.divide)
        )
        for op, numpy_op in (("min", np.fmin), ("max", np.fmax)):
            found.append(
                Case(f"{op}.f{bits} {{0}}, {{1}}, {{2}}", dtype, floats(2, dtype), numpy_op)
            )
        found.append(
            Case(f"max.NaN.f{bits} {{0}}, {{1}}, {{2}}", dtype, floats(2, dtype), np.maximum)
        )
    found.append(Case("abs.ftz.f32 {0}, {1}", np.float32, floats(1), lambda x: np.abs(_flushed(x))))
    found.append(Case("add.ftz.f32 {0}, {1}, {2}", np.float32, floats(2),
                      lambda a, b: _flushed(_flushed(a) + _flushed(b))))  # fmt: skip
    pairs = [np.ascontiguousarray(x[: len(x) // 2 * 2]).view(np.uint64) for x in floats(3)]
    single = _each(_nearest_fma, np.float32)
    found.append(Case("fma.rn.f32x2 {0}, {1}, {2}, {3}", np.uint64, pairs, _halves(single)))
    return found


def _approximate() -> list[Case]:
    """Return instructions that are rounded correctly as long as no error is asked for."""

    def double(function: Any) -> Any:
        return lambda *xs: function(*(_flushed(x).astype(np.float64) for x in xs)).astype(
            np.float32
        )

    root, two = double(lambda x: 1 / np.sqrt(x)), double(np.divide)
    return [
        Case("rsqrt.approx.ftz.f32 {0}, {1}", np.float32, floats(1), root),
        Case("sqrt.approx.ftz.f32 {0}, {1}", np.float32, floats(1), double(np.sqrt)),
        Case("rcp.approx.ftz.f32 {0}, {1}", np.float32, floats(1),
             lambda x: _flushed(double(lambda y: 1 / y)(x))),
        Case("ex2.approx.ftz.f32 {0}, {1}", np.float32, floats(1), lambda x: _flushed(double(np.exp2)(x))),
        Case("div.full.f32 {0}, {1}, {2}", np.float32, floats(2), np.divide),
        Case("div.approx.ftz.f32 {0}, {1}, {2}", np.float32, floats(2), lambda a, b: _flushed(two(a, b))),
    ]  # fmt: skip


def _bits() -> list[Case]:
    found = []
    for bits in (16, 32, 64):
        dtype = _dtype(f"u{bits}")
        for op, function in (("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__)):
            operands = integers(2, dtype)
            found.append(
                Case(f"{op}.b{bits} {{0}}, {{1}}, {{2}}", dtype, operands, _each(function, dtype))
            )
        found.append(
            Case(f"not.b{bits} {{0}}, {{1}}", dtype, integers(1, dtype), _each(lambda x: ~x, dtype))
        )
        for op, name in (("shl", "b"), ("shr", "u"), ("shr", "s")):
            kind = _dtype(f"{'s' if name == 's' else 'u'}{bits}")
            operands = integers(2, kind)
            operands[1] = (operands[1].astype(np.int64) % 80).astype(np.uint32)
            function = (lambda x, by: x << by) if op == "shl" else (lambda x, by: x >> by)
            found.append(
                Case(
                    f"{op}.{name}{bits} {{0}}, {{1}}, {{2}}", kind, operands, _each(function, kind)
                )
            )
    for op, function in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        operands = [np.array([0, 0, 1, 1], np.bool_), np.array([0, 1, 0, 1], np.bool_)]
        found.append(Case(f"{op}.pred {{0}}, {{1}}, {{2}}", np.bool_, operands, function))
    found.append(Case("not.pred {0}, {1}", np.bool_, [np.array([0, 1], np.bool_)], np.logical_not))
    words = integers(1, np.uint32)
    popc = _each(lambda x: f"{x:b}".count("1"), np.uint32)
    found.append(Case("popc.b32 {0}, {1}", np.uint32, words, popc))
    fields = np.array([*product((0, 3, 23, 31), (0, 1, 8, 12, 32))], np.uint32)
    for name, function in (("u32", _field), ("s32", _signed_field)):
        many = np.repeat(integers(1, _dtype(name))[0], len(fields))
        starts = [np.resize(column, len(many)) for column in fields.T]
        expected = _each(function, _dtype(name))
        found.append(
            Case(f"bfe.{name} {{0}}, {{1}}, {{2}}, {{3}}", _dtype(name), [many, *starts], expected)
        )
    pick = np.resize(np.array([0x3210, 0x7654, 0x5410, 0x0123, 0x9BFD], np.uint32), len(words[0]))
    operands = [words[0], words[0][::-1].copy(), pick]
    found.append(
        Case("prmt.b32 {0}, {1}, {2}, {3}", np.uint32, operands, _each(_permuted, np.uint32))
    )
    return found


def _field(x: int, start: int, length: int) -> int:
    return (x >> start) & ((1 << length) - 1)


def _signed_field(x: int, start: int, length: int) -> int:
    found = _field(x, start, length)
    return found - (1 << length) if length and found >> (length - 1) else found


def _permuted(a: int, b: int, how: int) -> int:
    both, found = (a | b << 32).to_bytes(8, "little"), []
    for i in range(4):
        nibble = (how >> 4 * i) & 15
        byte = both[nibble & 7]
        found.append((255 if byte > 127 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(found), "little")


def _comparisons() -> list[Case]:
    found = []
    usual = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal}
    usual |= {"gt": np.greater, "ge": np.greater_equal}
    for how, function in usual.items():
        for name in (
            "s32",
            "s64",
            "u32",
            "u64",
            *(("b16", "b32", "b64") if how in ("eq", "ne") else ()),
        ):
            dtype = _dtype(name)
            found.append(
                Case(
                    f"setp.{how}.{name} {{0}}, {{1}}, {{2}}", np.bool_, integers(2, dtype), function
                )
            )
        for bits, dtype in ((32, np.float32), (64, np.float64)):
            for kind, is_true in (("", False), ("u", True)):  # of NaN
                compute = _unordered(function, is_true)
                text = f"setp.{how}{kind}.f{bits} {{0}}, {{1}}, {{2}}"
                found.append(Case(text, np.bool_, floats(2, dtype), compute))
    for how, function in (
        ("lo", np.less),
        ("ls", np.less_equal),
        ("hi", np.greater),
        ("hs", np.greater_equal),
    ):
        found.append(
            Case(f"setp.{how}.u32 {{0}}, {{1}}, {{2}}", np.bool_, integers(2, np.uint32), function)
        )
    for bits, dtype in ((32, np.float32), (64, np.float64)):
        text = f"f{bits} {{0}}, {{1}}, {{2}}"
        found.append(
            Case(f"setp.num.{text}", np.bool_, floats(2, dtype), lambda a, b: (a == a) & (b == b))
        )
        found.append(
            Case(f"setp.nan.{text}", np.bool_, floats(2, dtype), lambda a, b: (a != a) | (b != b))
        )
    operands = integers(2, np.int32)
    third = np.resize(np.array([0, 1, 1], np.bool_), len(operands[0]))
    for join, both in (("and", np.logical_and), ("or", np.logical_or)):
        compute = lambda a, b, c, both=both: both(a < b, c)  # noqa: E731
        text = f"setp.lt.{join}.s32 {{0}}, {{1}}, {{2}}, {{3}}"
        found.append(Case(text, np.bool_, [*operands, third], compute))
    for name in ("b16", "b32", "b64", "f32", "f64"):
        dtype = _dtype(name)
        pair = floats(2, dtype) if name[0] == "f" else integers(2, dtype)
        flag = np.resize(np.array([0, 1, 1], np.bool_), len(pair[0]))
        text = f"selp.{name} {{0}}, {{1}}, {{2}}, {{3}}"
        found.append(Case(text, dtype, [*pair, flag], lambda a, b, p: np.where(p, a, b)))
    return found


def _unordered(function: Any, is_true: bool) -> Any:
    return lambda a, b: np.where(np.isnan(a) | np.isnan(b), is_true, function(a, b))


def _conversions() -> list[Case]:
    found = []
    names = ("s32", "s64", "u16", "u32", "u64", "s16")
    for to, source in product(names, names):
        if to != source:
            target, dtype = _dtype(to), _dtype(source)
            found.append(
                Case(
                    f"cvt.{to}.{source} {{0}}, {{1}}",
                    target,
                    integers(1, dtype),
                    _each(int, target),
                )
            )
    for bits, target in ((32, np.float32), (64, np.float64)):
        for source in ("s32", "s64", "u32", "u64"):
            compute = lambda x, t=target: x.astype(t)  # noqa: E731
            found.append(
                Case(
                    f"cvt.rn.f{bits}.{source} {{0}}, {{1}}",
                    target,
                    integers(1, _dtype(source)),
                    compute,
                )
            )
    rounds = {"rni": round, "rmi": np.floor, "rpi": np.ceil, "rzi": np.trunc}
    for how, function in rounds.items():
        for to, source in (("s32", "f32"), ("u32", "f32"), ("s64", "f64")):
            target = _dtype(to)
            compute = _each(lambda x, f=function, t=target: _clamped(f, x, t), target)
            text = f"cvt.{how}.{to}.{source} {{0}}, {{1}}"
            found.append(Case(text, target, floats(1, _dtype(source)), compute))
        whole = np.rint if how == "rni" else function
        found.append(Case(f"cvt.{how}.f32.f32 {{0}}, {{1}}", np.float32, floats(1), whole))
        flushed = lambda x, f=whole: f(_flushed(x))  # noqa: E731
        found.append(Case(f"cvt.{how}.ftz.f32.f32 {{0}}, {{1}}", np.float32, floats(1), flushed))
    found.append(
        Case("cvt.f64.f32 {0}, {1}", np.float64, floats(1), lambda x: x.astype(np.float64))
    )
    narrow = lambda x: x.astype(np.float32)  # noqa: E731
    found.append(Case("cvt.rn.f32.f64 {0}, {1}", np.float32, floats(1, np.float64), narrow))
    halves = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)[::7].copy()
    as_f16 = lambda x: x.view(np.float16)  # noqa: E731
    for bits, target in ((32, np.float32), (64, np.float64)):
        compute = lambda x, t=target: x.view(np.float16).astype(t)  # noqa: E731
        found.append(Case(f"cvt.f{bits}.f16 {{0}}, {{1}}", target, [halves], compute))
        compute = lambda x, t=target: _from_bf16(x).astype(t)  # noqa: E731
        if bits == 32:
            found.append(Case("cvt.f32.bf16 {0}, {1}", target, [halves], compute))
        else:
            found.append(Case("cvt.f64.bf16 {0}, {1}", target, [halves], compute))
    assert as_f16(halves).dtype == np.float16
    near = _near_ties()
    half = lambda x: x.astype(np.float16).view(np.uint16)  # noqa: E731
    found.append(Case("cvt.rn.f16.f32 {0}, {1}", np.uint16, [near], half))
    found.append(
        Case("cvt.rn.bf16.f32 {0}, {1}", np.uint16, [near], _each(_nearest_bf16, np.uint16))
    )
    for name, one in (("f16x2", half), ("bf16x2", _each(_nearest_bf16, np.uint16))):
        both = lambda a, b, one=one: (one(a).astype(np.uint32) << 16) | one(b)  # noqa: E731
        text = f"cvt.rn.{name}.f32 {{0}}, {{1}}, {{2}}"
        found.append(Case(text, np.uint32, [near, near[::-1].copy()], both))
    return found


def _clamped(function: Any, x: float, dtype: Any) -> int:
    limits = np.iinfo(dtype)
    if np.isnan(x):
        return 0
    if np.isinf(x):
        return int(limits.max if x > 0 else limits.min)
    return min(max(int(function(x)), int(limits.min)), int(limits.max))


def _near_ties() -> np.ndarray:
    """Return numbers between, and half-way between, those of 16 bits; without NaN, which has many bits."""
    tops = _RANDOM.integers(0, 0x7F80, 40).astype(np.uint32)
    lows = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x1000, 0x0FFF, 0x1001], np.uint32)
    bits = (tops[:, None] << np.uint32(16) | lows).ravel()
    found = np.concatenate([bits, bits | np.uint32(1 << 31)]).view(np.float32)
    return np.concatenate([found, np.array([np.inf, -np.inf, 65504, 65519.9, 65520], np.float32)])


def _from_bf16(bits: np.ndarray) -> np.ndarray:
    return np.stack([np.zeros_like(bits), bits], 1).view(np.float32)[:, 0]


def _nearest_bf16(x: float) -> int:
    """Return the bits of the nearest bfloat16, ties to even, by trying both neighbours."""
    bits = int(np.float32(x).view(np.uint32))
    if np.isinf(x):
        return bits >> 16
    below, sign = (bits >> 16) & 0x7FFF, bits >> 31
    values = [Fraction(0)] * 2
    for i in (0, 1):
        each = np.array([(below + i) << 16], np.uint32).view(np.float32)[0]
        # What would be infinite counts as the next power of two.
        values[i] = Fraction(2) ** 128 if np.isinf(each) else Fraction(float(each))
    down, up = (abs(abs(Fraction(x)) - value) for value in values)
    return (sign << 15) | (below + (up < down or (up == down and below & 1)))


def _flushed(x: np.ndarray) -> np.ndarray:
    found = x.copy()
    found[np.abs(found) < 2.0**-126] *= 0
    return found


def _halves(function: Any, half: Any = np.float32, whole: Any = np.uint64) -> Any:
    return lambda *xs: np.ascontiguousarray(function(*(x.view(half) for x in xs))).view(whole)


def _dtype(name: str) -> Any:
    kind = {"b": "u", "u": "u", "s": "i", "f": "f"}[name[0]]
    return np.dtype(f"{kind}{int(name[1:]) // 8}").type


CASES = [*_arithmetic(), *_approximate(), *_bits(), *_comparisons(), *_conversions()]
