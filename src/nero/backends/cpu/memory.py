"""Features that numba lacks: addresses, prefetching, and 16-bit floats.

`load` and `store` convert a stored weight to float32 and back. bfloat16 is stored as uint16 and float16 as
int16, because numba has no arithmetic for them on CPUs.

Momentum is selected by type: without it, its arguments are ``None`` and its code is not compiled.
Momentum buffers are stored as float32, or as stochastically rounded bfloat16.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.extending import overload as _overload

SMALLEST = np.float32(1.1754944e-38)  # normal number; averages below it count as zero
AHEAD = 4096  # prefetch distance in bytes
BLOCK = 128  # weights summed in float32 before accumulation in float64


@intrinsic
def pointer(typing_context: Any, address: Any, like: Any) -> Any:
    """Read an int64 as the address of elements like ``like``."""
    pointer = types.CPointer(like)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(pointer))

    return pointer(types.int64, like), codegen


# Wrappers for calls from Python and C take half the compile time of a small function.
INNER: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


@numba.njit(**INNER)
def read_at(address: int, like: Any) -> Any:
    """Read the number at an address."""
    return numba.carray(pointer(address, like), (1,))[0]


def _fetch(builder: Any, address: Any) -> None:
    """Prefetch a cache line into the second-level cache, for reading."""
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    name = "llvm.prefetch.p0"
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(function, [builder.inttoptr(address, byte), number(0), number(2), number(1)])


# The kernels' most frequent operations are intrinsics, because each compiled function costs compile time.


@intrinsic
def size_of(typing_context: Any, like: Any) -> Any:
    """Return the size of a stored weight in bytes."""
    size = ir.IntType(64)(_BYTES[like])
    return types.int64(like), lambda context, builder, signature, args: size


@intrinsic
def prefetch_block(typing_context: Any, address: Any, like: Any) -> Any:
    """Prefetch the cache lines of one block of weights."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for line in range(BLOCK * _BYTES[like] // 64):
            _fetch(builder, builder.add(args[0], ir.IntType(64)(64 * line)))
        return context.get_dummy_value()

    return types.void(types.int64, like), codegen


@intrinsic
def load(typing_context: Any, x: Any) -> Any:
    """Read a stored weight as float32."""

    def bfloat16(b: Any, x: Any) -> Any:
        wide = b.shl(b.zext(x, ir.IntType(32)), ir.IntType(32)(16))
        return b.bitcast(wide, ir.FloatType())

    def float16(b: Any, x: Any) -> Any:
        return b.fpext(b.bitcast(x, ir.HalfType()), ir.FloatType())

    convert = {types.uint16: bfloat16, types.int16: float16}.get(x, lambda b, x: x)
    return types.float32(x), lambda context, b, signature, args: convert(b, args[0])


@intrinsic
def store(typing_context: Any, x: Any, like: Any) -> Any:
    """Round a float32 to nearest, in the format of weights like ``like``."""

    def bfloat16(b: Any, x: Any) -> Any:
        number, half = ir.IntType(32), ir.IntType(16)
        bits = b.bitcast(x, number)
        odd = b.and_(b.lshr(bits, number(16)), number(1))
        rounded = b.lshr(b.add(b.add(bits, number(0x7FFF)), odd), number(16))
        return b.select(b.fcmp_unordered("uno", x, x), half(0x7FC0), b.trunc(rounded, half))

    def float16(b: Any, x: Any) -> Any:
        return b.bitcast(b.fptrunc(x, ir.HalfType()), ir.IntType(16))

    convert = {types.uint16: bfloat16, types.int16: float16}.get(like, lambda b, x: x)
    return like(types.float32, like), lambda context, b, signature, args: convert(b, args[0])


@intrinsic
def bits_of(typing_context: Any, x: Any) -> Any:
    """Read the bits of a float32."""
    return types.uint32(types.float32), lambda context, b, signature, args: b.bitcast(
        args[0], ir.IntType(32)
    )


@intrinsic
def if_momentum(typing_context: Any, like: Any, with_it: Any, without_it: Any) -> Any:
    """Return the first number with momentum, and the second without."""
    chosen = 2 if isinstance(like, types.NoneType) else 1
    signature = types.float64(like, types.float64, types.float64)
    return signature, lambda context, builder, signature, args: args[chosen]


_BYTES = {types.float32: 4, types.uint16: 2, types.int16: 2}


def precision(like):
    """Return eps and the exponent of the smallest normal number; eps = 0 means no rounding."""
    raise NotImplementedError


def momentum_row(like, address, at, length):
    """Return a row of the momentum buffer, stored like ``like``, from index ``at``; or ``None``."""
    raise NotImplementedError


def prefetch_momentum(like, address, at):
    """Prefetch the cache lines of a momentum buffer's next block, if there is a buffer."""
    raise NotImplementedError


def direction(g, m, i, a, b):
    """Return the direction of a step: ``g``, or with momentum ``a*g + b*m[i]``."""
    raise NotImplementedError


def advance(g, m, i, c, mu, noise):
    """Update the momentum buffer, ``m[i] <- c*g + mu*m[i]``, rounded with noise from ``noise`` on."""
    raise NotImplementedError


@_overload(momentum_row, jit_options=INNER)
def _momentum_row_overload(like, address, at, length):
    if isinstance(like, types.NoneType):
        return lambda like, address, at, length: None
    return lambda like, address, at, length: numba.carray(
        pointer(address + at * size_of(like), like), (length,)
    )


@_overload(prefetch_momentum, jit_options=INNER)
def _prefetch_momentum_overload(like, address, at):
    if isinstance(like, types.NoneType):
        return lambda like, address, at: None
    return lambda like, address, at: prefetch_block(address + at * size_of(like) + AHEAD, like)


@_overload(direction, jit_options=INNER)
def _direction_overload(g, m, i, a, b):
    if isinstance(m, types.NoneType):
        return lambda g, m, i, a, b: g
    return lambda g, m, i, a, b: a * g + b * load(m[i])


@_overload(advance, jit_options=INNER)
def _advance_overload(g, m, i, c, mu, noise):
    if isinstance(m, types.NoneType):
        return lambda g, m, i, c, mu, noise: None

    def average(g, m, i, c, mu, noise):
        new = np.float32(c * g + mu * load(m[i]))
        new = new if not abs(new) < SMALLEST else np.float32(0)  # NaN stays
        m[i] = _round_average(new, m[i], noise + np.uint64(i))

    return average


def _round_average(x, like, noise):
    """Round an average to its stored format."""
    raise NotImplementedError


@_overload(_round_average, jit_options=INNER)
def _round_average_overload(x, like, noise):
    def bfloat16(x, like, noise):
        # round_stochastic on bits: a magnitude grows if the truncated bits plus the noise carry. Noise
        # decides about rounding up, so it is inverted for negative numbers, whose magnitude then shrinks.
        bits = bits_of(x)
        uniform = np.uint32(mix(noise) >> np.uint64(24)) & np.uint32(0xFFFF)
        inverted = uniform ^ np.uint32(0xFFFF)
        rounded = (bits + (uniform if bits >> np.uint32(31) else inverted)) >> np.uint32(16)
        return np.uint16(rounded if x == x else np.uint32(0x7FC0))

    return (lambda x, like, noise: x) if like == types.float32 else bfloat16


@numba.njit(**INNER)
def mix(x: Any) -> Any:
    """Return the hash of nero.core.rounding: the finalizer of splitmix64."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@_overload(precision, jit_options=INNER)
def _precision_overload(like):
    return {
        types.float32: lambda like: (0.0, 0),
        types.uint16: lambda like: (2.0**-7, -126),
        types.int16: lambda like: (2.0**-10, -14),
    }[like]
