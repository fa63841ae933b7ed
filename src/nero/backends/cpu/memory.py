"""What Python cannot say to numba: addresses, prefetching, and 16-bit floats.

`load` and `store` turn a stored weight into float32 and back, by the way it is stored: float32 as it is,
bfloat16 as uint16 and float16 as int16, because numba has no arithmetic for them on CPUs.

Momentum is there or not by type: where there is none, what stands for it is ``None``, and what would use it
is not compiled. Averages of the gradient are stored as float32, or as bfloat16 and rounded stochastically.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

SMALLEST = np.float32(1.1754944e-38)  # normal; averages below it count as zero
AHEAD = 4096  # bytes between what is read and what is fetched
BLOCK = 128  # weights summed in float32 before they are added up in float64


@intrinsic
def pointer(typing_context: Any, address: Any, like: Any) -> Any:
    """Read an int64 as the address of elements like ``like``."""
    pointer = types.CPointer(like)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(pointer))

    return pointer(types.int64, like), codegen


@numba.njit(nogil=True, error_model="numpy")
def read_at(address: int, like: Any) -> Any:
    """Read the number at an address."""
    return numba.carray(pointer(address, like), (1,))[0]


@intrinsic
def _prefetch(typing_context: Any, address: Any) -> Any:
    """Ask for a cache line, for reading, into the second-level cache."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        name = "llvm.prefetch.p0"
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(function, [builder.inttoptr(args[0], byte), number(0), number(2), number(1)])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


def _bitcast(source: Any, target: Any, convert: Any) -> Any:
    @intrinsic
    def cast(typing_context: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return convert(builder, args[0])

        return target(source), codegen

    return cast


_bits_of = _bitcast(types.float32, types.uint32, lambda b, x: b.bitcast(x, ir.IntType(32)))
_float_of = _bitcast(types.uint32, types.float32, lambda b, x: b.bitcast(x, ir.FloatType()))


@numba.njit(nogil=True, error_model="numpy")
def is_negative(x: Any) -> Any:
    """Tell whether a float32 has a sign; -0.0 has."""
    return _bits_of(x) >> np.uint32(31) != 0


_half_to_float = _bitcast(
    types.int16, types.float32, lambda b, x: b.fpext(b.bitcast(x, ir.HalfType()), ir.FloatType())
)
_float_to_half = _bitcast(
    types.float32, types.int16, lambda b, x: b.bitcast(b.fptrunc(x, ir.HalfType()), ir.IntType(16))
)


def size_of(like):
    """Return the bytes of one stored weight."""
    raise NotImplementedError


def prefetch_block(address, like):
    """Ask for the lines of one block of weights."""
    raise NotImplementedError


def load(x):
    """Read a stored weight as float32."""
    raise NotImplementedError


def store(x, like):
    """Round a float32 to nearest, as weights like ``like`` are stored."""
    raise NotImplementedError


def precision(like):
    """Return eps and the exponent of the smallest normal number; eps = 0 where nothing is rounded."""
    raise NotImplementedError


def momentum_row(like, address, at, length):
    """Return a row of averages of the gradient that are stored like ``like``, from number ``at`` on.

    Where ``like`` is ``None`` there are none, and it returns ``None``.
    """
    raise NotImplementedError


def prefetch_momentum(like, address, at):
    """Ask for the lines of one block of averages, and those ahead, if there are any."""
    raise NotImplementedError


def direction(g, m, i, a, b):
    """Return what a step goes along: ``g``, or ``a*g + b*m[i]``."""
    raise NotImplementedError


def advance(g, m, i, c, mu, noise):
    """Average the gradient: ``m[i] <- c*g + mu*m[i]``, rounded by noise that begins at ``noise``."""
    raise NotImplementedError


def if_momentum(like, with_it, without_it):
    """Return the first number where there is momentum, and the second where there is none."""
    raise NotImplementedError


@overload(momentum_row)
def _momentum_row_overload(like, address, at, length):
    if isinstance(like, types.NoneType):
        return lambda like, address, at, length: None
    return lambda like, address, at, length: numba.carray(
        pointer(address + at * size_of(like), like), (length,)
    )


@overload(prefetch_momentum)
def _prefetch_momentum_overload(like, address, at):
    if isinstance(like, types.NoneType):
        return lambda like, address, at: None
    return lambda like, address, at: prefetch_block(address + at * size_of(like) + AHEAD, like)


@overload(direction)
def _direction_overload(g, m, i, a, b):
    if isinstance(m, types.NoneType):
        return lambda g, m, i, a, b: g
    return lambda g, m, i, a, b: a * g + b * load(m[i])


@overload(advance)
def _advance_overload(g, m, i, c, mu, noise):
    if isinstance(m, types.NoneType):
        return lambda g, m, i, c, mu, noise: None

    def average(g, m, i, c, mu, noise):
        new = np.float32(c * g + mu * load(m[i]))
        new = new if not abs(new) < SMALLEST else np.float32(0)  # NaN stays
        m[i] = _round_average(new, m[i], noise + np.uint64(i))

    return average


def _round_average(x, like, noise):
    """Return an average as it is stored."""
    raise NotImplementedError


@overload(_round_average)
def _round_average_overload(x, like, noise):
    def bfloat16(x, like, noise):
        # round_stochastic, in bits: a magnitude grows if what is cut off and the noise carry. Noise is
        # for rounding up, so that of negative numbers, whose magnitude then shrinks, is inverted.
        bits = _bits_of(x)
        uniform = np.uint32(mix(noise) >> np.uint64(24)) & np.uint32(0xFFFF)
        inverted = uniform ^ np.uint32(0xFFFF)
        rounded = (bits + (uniform if bits >> np.uint32(31) else inverted)) >> np.uint32(16)
        return np.uint16(rounded if x == x else np.uint32(0x7FC0))

    return (lambda x, like, noise: x) if like == types.float32 else bfloat16


@numba.njit(nogil=True, error_model="numpy")
def mix(x: Any) -> Any:
    """Return the hash of nero.core.rounding: the finaliser of splitmix64."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@overload(if_momentum)
def _if_momentum_overload(like, with_it, without_it):
    if isinstance(like, types.NoneType):
        return lambda like, with_it, without_it: without_it
    return lambda like, with_it, without_it: with_it


@overload(size_of)
def _size_of_overload(like):
    return (lambda like: np.int64(4)) if like == types.float32 else (lambda like: np.int64(2))


@overload(prefetch_block)
def _prefetch_block_overload(address, like):
    num_lines = BLOCK * (4 if like == types.float32 else 2) // 64  # a constant, so it is unrolled

    def fetch(address, like):
        for line in range(num_lines):
            _prefetch(address + line * 64)

    return fetch


@overload(load)
def _load_overload(x):
    return {
        types.float32: lambda x: x,
        types.uint16: lambda x: _float_of(np.uint32(x) << np.uint32(16)),
        types.int16: lambda x: _half_to_float(x),
    }[x]


@overload(store)
def _store_overload(x, like):
    def bfloat16(x, like):
        bits = _bits_of(x)
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        rounded = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
        return np.uint16(rounded if x == x else np.uint32(0x7FC0))

    return {
        types.float32: lambda x, like: x,
        types.uint16: bfloat16,
        types.int16: lambda x, like: _float_to_half(x),
    }[like]


@overload(precision)
def _precision_overload(like):
    return {
        types.float32: lambda like: (0.0, 0),
        types.uint16: lambda like: (2.0**-7, -126),
        types.int16: lambda like: (2.0**-10, -14),
    }[like]
