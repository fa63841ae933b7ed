"""Features that numba lacks: addresses, prefetching, and 16-bit floats.

`load` and `store` convert a stored weight to float32 and back. bfloat16 is stored as uint16 and float16 as
int16, because numba has no arithmetic for them on CPUs.

Momentum is selected by type: without it, its arguments are ``None`` and its code is not compiled.
Momentum buffers are stored as float32, or as stochastically rounded bfloat16.
"""

import math
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.extending import overload as _overload

SMALLEST = np.float32(1.1754944e-38)  # normal number; averages below it count as zero
AHEAD = 8192  # prefetch distance in bytes
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


@intrinsic
def record(typing_context: Any, table: Any, index: Any, kind: Any) -> Any:
    """Return a record of a table, which begins at the address ``table``."""
    kind = kind.instance_type

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        offset = builder.mul(args[1], ir.IntType(64)(kind.size))
        return builder.inttoptr(builder.add(args[0], offset), context.get_value_type(kind))

    return kind(types.int64, types.int64, types.TypeRef(kind)), codegen


def _fetch_block(builder: Any, address: Any, like: Any) -> None:
    """Prefetch the cache lines of a block into the second-level cache, for reading."""
    byte, number = ir.IntType(8).as_pointer(), _I32
    name = "llvm.prefetch.p0"
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    for offset in range(0, BLOCK * _BYTES[like], 64):
        line = builder.inttoptr(builder.add(address, ir.IntType(64)(offset)), byte)
        builder.call(function, [line, number(0), number(2), number(1)])


# The kernels' most frequent operations are intrinsics, because each compiled function costs compile time.


@intrinsic
def size_of(typing_context: Any, like: Any) -> Any:
    """Return the size of a stored weight in bytes."""
    size = ir.IntType(64)(_BYTES[like])
    return types.int64(like), lambda context, builder, signature, args: size


@intrinsic
def prefetch_block(typing_context: Any, address: Any, like: Any) -> Any:
    """Prefetch the cache lines of one block of weights."""
    signature = types.void(types.int64, like)
    return signature, lambda context, b, signature, args: _fetch_block(b, args[0], like)


@intrinsic
def load(typing_context: Any, x: Any) -> Any:
    """Read a stored weight as float32."""
    return types.float32(x), lambda context, b, signature, args: _widened(b, x, args[0])


def _widened(b: Any, like: Any, x: Any) -> Any:
    if like == types.uint16:
        return b.bitcast(b.shl(b.zext(x, _I32), _I32(16)), ir.FloatType())
    return b.fpext(b.bitcast(x, ir.HalfType()), ir.FloatType()) if like == types.int16 else x


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
def select(typing_context: Any, condition: Any, x: Any, y: Any) -> Any:
    """Return ``x`` if the condition holds, else ``y``: both are computed, without a branch."""
    kind = typing_context.unify_types(x, y)
    signature = kind(types.boolean, kind, kind)
    return signature, lambda context, b, signature, args: b.select(*args)


@intrinsic
def is_finite(typing_context: Any, x: Any) -> Any:
    """Return whether a number is neither NaN nor infinite."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        size = b.module.declare_intrinsic("llvm.fabs", [args[0].type])
        return b.fcmp_ordered("<", b.call(size, args), args[0].type(math.inf))

    return types.boolean(x), codegen


@intrinsic
def bits_of(typing_context: Any, x: Any) -> Any:
    """Read the bits of a float32."""
    return types.uint32(types.float32), lambda context, b, signature, args: b.bitcast(
        args[0], ir.IntType(32)
    )


@intrinsic
def fused(typing_context: Any, x: Any, y: Any, z: Any) -> Any:
    """Return ``x*y + z``, rounded once if the CPU can.

    With fast math, the compiler may fuse either product of a sum of two, and choose again for each copy of
    the code: a process that compiles the kernel would differ from one that finds it in the cache.
    """
    return x(x, x, x), lambda context, b, signature, args: _fused(b, *args)


def _fused(b: Any, x: Any, y: Any, z: Any) -> Any:
    kind = ir.FunctionType(x.type, [x.type] * 3)
    return b.call(b.module.declare_intrinsic("llvm.fmuladd", [x.type], kind), [x, y, z])


@intrinsic
def if_momentum(typing_context: Any, like: Any, with_it: Any, without_it: Any) -> Any:
    """Return the first number with momentum, and the second without."""
    chosen = 2 if isinstance(like, types.NoneType) else 1
    signature = types.float64(like, types.float64, types.float64)
    return signature, lambda context, builder, signature, args: args[chosen]


_I32 = ir.IntType(32)
_BYTES = {types.float32: 4, types.uint16: 2, types.int16: 2}


@intrinsic
def momentum_row(typing_context: Any, like: Any, address: Any, at: Any) -> Any:
    """Return the momentum buffer, stored like ``like``, from index ``at``; or ``None``."""
    if isinstance(like, types.NoneType):
        return types.none(like, types.int64, types.int64), _nothing

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        offset = b.mul(args[2], ir.IntType(64)(_BYTES[like]))
        return b.inttoptr(b.add(args[1], offset), context.get_value_type(signature.return_type))

    return types.CPointer(like)(like, types.int64, types.int64), codegen


@intrinsic
def prefetch_momentum(typing_context: Any, like: Any, address: Any, at: Any) -> Any:
    """Prefetch the cache lines of a momentum buffer's next block, if there is a buffer."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        first = b.add(
            b.add(args[1], ir.IntType(64)(AHEAD)), b.mul(args[2], ir.IntType(64)(_BYTES[like]))
        )
        return _fetch_block(b, first, like)

    signature = types.void(like, types.int64, types.int64)
    return signature, _nothing if isinstance(like, types.NoneType) else codegen


@intrinsic
def direction(typing_context: Any, g: Any, m: Any, i: Any, a: Any, b: Any) -> Any:
    """Return the direction of a step: ``g``, or with momentum ``a*g + b*m[i]``."""
    if isinstance(m, types.NoneType):
        return g(g, m, i, a, b), lambda context, builder, signature, args: args[0]
    kind = typing_context.unify_types(g, a)
    return kind(kind, m, types.int64, kind, kind), _averaged


@intrinsic
def advance(typing_context: Any, g: Any, m: Any, i: Any, c: Any, mu: Any, noise: Any) -> Any:
    """Update the momentum buffer, ``m[i] <- c*g + mu*m[i]``, rounded with noise from ``noise`` on."""
    if isinstance(m, types.NoneType):
        return types.void(g, m, i, c, mu, noise), _nothing
    kind = typing_context.unify_types(g, c)

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        new = context.cast(b, _averaged(context, b, signature, args[:5]), kind, types.float32)
        inner = types.void(m, types.int64, types.float32, types.uint64)
        return context.compile_internal(b, _put_average, inner, [args[1], args[2], new, args[5]])

    return types.void(kind, m, types.int64, kind, kind, types.uint64), codegen


def _averaged(context: Any, b: Any, signature: Any, args: Any) -> Any:
    """Generate ``a*g + b*m[i]``, with the second product fused."""
    g, m, i, of_g, of_m = args
    kind, like = signature.args[0], signature.args[1].dtype
    old = context.cast(b, _widened(b, like, b.load(b.gep(m, [i]))), types.float32, kind)
    return _fused(b, of_m, old, b.fmul(of_g, g))


def _put_average(m: Any, i: Any, new: Any, noise: Any) -> None:
    new = new if not abs(new) < SMALLEST else np.float32(0)  # NaN stays
    m[i] = _round_average(new, m[i], noise + np.uint64(i))


def _nothing(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return context.get_dummy_value()


def precision(like):
    """Return eps and the exponent of the smallest normal number; eps = 0 means no rounding."""
    raise NotImplementedError


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
