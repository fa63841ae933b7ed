"""The CPU kernel: numba code that works on raw addresses instead of tensors.

A row is read once, for its five sums, and written once while it is still in cache: the memory traffic of
SGD, with momentum if there is any. Sums run in float32 over blocks of 128, which are accumulated in float64
(the relative error is about 1e-8, below the rounding of a float32 coefficient); if squares leave float32's
range, they are computed again entirely in float64. The compiler may reorder sums, but may not assume that
NaN and inf do not occur.

Beyond memory traffic, time goes into the coefficients (square roots and divisions take as long as a hundred
weights) and into waiting for them. So they are computed for several small rows at once, vectorized, and one
loop writes a row while it sums the next.

This module imports numba; `nero.backends.cpu.plan` imports it at the first step.
"""

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from nero.backends.cpu.announce import announce_compiling
from nero.backends.cpu.memory import (
    AHEAD,
    BLOCK,
    INNER,
    advance,
    bits_of,
    direction,
    if_momentum,
    load,
    mix,
    momentum_row,
    pointer,
    precision,
    prefetch_block,
    prefetch_momentum,
    read_at,
    size_of,
    store,
)
from nero.backends.geometry import Geometry
from nero.core.gram import gram_keys
from nero.core.spec import COLUMNS, PEAK, PROPAGATE, STATE

assert gram_keys("wg") == ("ww", "w1", "wg", "gg", "g1")

# One record per tensor: the addresses of it and its state, the loops over it, and the options as numbers.
# If the fan-in is sharded, sums are written to `gram`, and coefficients are read from `turns`.
ADDRESSES = ("weight", "grad", *STATE, "gram", "turns", "moves", "written")
RECORD = np.dtype(
    [
        *((name, np.int64) for name in (*ADDRESSES, *Geometry._fields, "position", "start")),
        *((name, np.float64 if kind is float else np.int64) for name, kind in COLUMNS.items()),
        ("lr", np.float64),
    ]
)
# numba's cache depends only on this file, so it also names the version of `memory` it is compiled with.
MEMORY = "52210ab60140"  # the first digits of the SHA-256 of memory.py
WW, W1, WG, GG, G1 = range(5)  # rows of the sums, in the order of nero.core.gram
NUM_SUMS = 5
NEURONS = 128  # the maximum number of neurons processed together
GROUP = 2048  # weights in the rows processed together: they and the rows before them stay in cache
TARGET, OLD_SQ = 5, 6  # rows of the sums with the target norm, and the squared average before
MOVES, OPEN, WRITTEN, DONE, BEHIND = range(5)  # rows of the marks
NOTHING = np.float32(0), np.float32(0), np.float32(0)
LARGEST = np.finfo(np.float32).max
SIGN = np.uint32(31)  # position of a float32's sign bit

announce_compiling()
# Kernels are called from Python; other functions are compiled into them.
_EXACT: dict[str, Any] = INNER
_KERNEL: dict[str, Any] = {**_EXACT, "no_cpython_wrapper": False}
_FAST: dict[str, Any] = {**_EXACT, "fastmath": {"reassoc", "contract", "nsz"}}


def _kernel(function: Callable[..., None]) -> Any:
    """Compile a function that Python calls, and cache it on disk if numba can."""
    try:
        return numba.njit(cache=True, **_KERNEL)(function)
    except RuntimeError:  # all of numba's cache folders are read-only
        return numba.njit(**_KERNEL)(function)


# All kernels take the same arguments: scratch space for one thread (see `alloc_scratch`), the table, chunks
# of it as (tensor, first neuron, last neuron), a counter of skipped neurons per chunk, and `mode`: a number
# of the type in which momentum buffers are stored, or ``None`` without momentum.


def alloc_scratch(stored_as: str) -> tuple[Any, ...]:
    """Allocate scratch space: blocks of weights, sums with target norms, coefficients, and marks."""
    return (
        np.zeros(4 * BLOCK, stored_as),
        np.zeros((7, NEURONS)),
        np.zeros((3, NEURONS), np.float32),
        np.zeros((5, NEURONS), np.bool_),
    )


@_kernel
def walk_rows(
    scratch: Any,
    sums: Any,
    turns: Any,
    marks: Any,
    table: Any,
    chunks: Any,
    skipped: Any,
    mode: Any,
) -> None:
    """Update neurons that are contiguous rows, rounding to nearest.

    A few rows are summed while those before them are written.
    """
    size = size_of(scratch[0])
    nowhere = np.int64(scratch.ctypes.data)
    for index in range(chunks.shape[0]):
        task = table[chunks[index, 0]]
        first, last = chunks[index, 1], chunks[index, 2]
        skipped[index] = 0
        if task.lr == 0:
            continue
        step, correction, before = _count(task)
        noise = _noise_start(task, step)
        sums[TARGET] = task.target
        fan_in, stride = task.fan_inner, task.outer_stride * size
        a, b, c, mu = _momentum_factors(task)
        sign = if_momentum(mode, 1.0, _sign(task))  # with momentum, the direction includes it
        group = max(min(GROUP // fan_in, NEURONS), 1)
        num_waiting = 0  # rows of the group before that are not yet written
        for row in range(first, last + group, group):
            count = max(min(group, last - row), 0)
            for j in range(count):
                w, g = task.weight + (row + j) * stride, task.grad + (row + j) * stride
                m = (row + j) * task.outer_stride
                m0 = m - group * task.outer_stride
                # A branch rather than a select: addresses would wait for the turn, a branch is predicted.
                if j < num_waiting and marks[MOVES, j]:
                    five = _write_and_sum(
                        scratch, mode, w - group * stride, g - group * stride, task.exp_avg, m0, size,
                        turns[0, j], turns[1, j], turns[2, j], a, b, c, mu, noise, w, g,
                        task.exp_avg, m, fan_in,
                    )  # fmt: skip
                else:  # nothing to write
                    five = _write_and_sum(
                        scratch, mode, nowhere, nowhere + BLOCK * size, nowhere + 2 * BLOCK * size, 0, 0,
                        *NOTHING, a, b, NOTHING[0], NOTHING[0], noise, w, g,
                        task.exp_avg, m, fan_in,
                    )  # fmt: skip
                for k in range(NUM_SUMS):
                    sums[k, j] = five[k]
            for j in range(count, num_waiting):
                if marks[MOVES, j]:
                    at = (row - group + j) * task.outer_stride
                    _write(scratch, mode, task, at, fan_in, turns, j, noise)
            marks[OPEN, :count] = True
            is_exact, num_open = np.int64(0), count
            while num_open:
                skipped[index] += _turn(
                    sign, task, correction, before, row, count, is_exact, sums, turns, marks
                )
                is_exact, num_open = np.int64(1), 0
                for j in range(count):
                    if marks[OPEN, j]:
                        num_open += 1
                        at = (row + j) * task.outer_stride
                        five = _sums_float64(scratch, mode, task, at, fan_in)
                        for k in range(NUM_SUMS):
                            sums[k, j] = five[k]
            if mode is not None:  # or nothing is compiled
                for j in range(count):
                    if marks[WRITTEN, j] and not marks[MOVES, j]:
                        at = (row + j) * task.outer_stride
                        _average(scratch, mode, task, at, fan_in, noise)
            num_waiting = count


@_kernel
def walk_columns(
    scratch: Any,
    sums: Any,
    turns: Any,
    marks: Any,
    table: Any,
    chunks: Any,
    skipped: Any,
    mode: Any,
) -> None:
    """Update neurons in any memory order, with any rounding; those of a chunk share an outer loop."""
    for index in range(chunks.shape[0]):
        task = table[chunks[index, 0]]
        first, count = chunks[index, 1], chunks[index, 2] - chunks[index, 1]
        skipped[index] = 0
        if task.lr == 0:
            continue
        step, correction, before = _count(task)
        sums[TARGET] = task.target
        _sum_columns(scratch, mode, task, first, count, sums)
        marks[OPEN, :count] = True
        sign = if_momentum(mode, 1.0, _sign(task))
        skipped[index] = _turn(sign, task, correction, before, first, count, 1, sums, turns, marks)
        noise = _noise_start(task, step)
        _write_columns(scratch, mode, task, first, count, turns, marks, noise)


@_kernel
def sum_columns(
    scratch: Any,
    sums: Any,
    turns: Any,
    marks: Any,
    table: Any,
    chunks: Any,
    skipped: Any,
    mode: Any,
) -> None:
    """Sum this rank's part of each neuron, with the direction of the step as the gradient."""
    for index in range(chunks.shape[0]):
        task = table[chunks[index, 0]]
        first, count = chunks[index, 1], chunks[index, 2] - chunks[index, 1]
        _sum_columns(scratch, mode, task, first, count, sums)
        total, sign = task.outer * task.inner, if_momentum(mode, 1.0, _sign(task))
        out = numba.carray(pointer(task.gram, 0.0), (NUM_SUMS, total))
        for b in range(count):
            for k in range(NUM_SUMS):
                out[k, first + b] = sums[k, b] * (sign if k in (WG, G1) else 1.0)


@_kernel
def write_columns(
    scratch: Any,
    sums: Any,
    turns: Any,
    marks: Any,
    table: Any,
    chunks: Any,
    skipped: Any,
    mode: Any,
) -> None:
    """Write this rank's part of each neuron, with the given coefficients."""
    for index in range(chunks.shape[0]):
        task = table[chunks[index, 0]]
        first, count = chunks[index, 1], chunks[index, 2] - chunks[index, 1]
        total, sign = task.outer * task.inner, np.float32(if_momentum(mode, 1.0, _sign(task)))
        given = numba.carray(pointer(task.turns, np.float32(0)), (3, total))
        moves = numba.carray(pointer(task.moves, np.uint8(0)), (total,))
        written = numba.carray(pointer(task.written, np.uint8(0)), (total,))
        for b in range(count):
            turns[0, b] = given[0, first + b]
            turns[1, b] = given[1, first + b] * sign
            turns[2, b] = given[2, first + b]
            marks[MOVES, b] = moves[first + b] != 0
            marks[WRITTEN, b] = written[first + b] != 0
        noise = _noise_start(task, _count(task)[0])
        _write_columns(scratch, mode, task, first, count, turns, marks, noise)


@numba.njit(**_EXACT)
def _sum_columns(scratch: Any, mode: Any, task: Any, first: int, count: int, sums: Any) -> None:
    """Sum, in float64, neurons that share an outer loop."""
    size, length = size_of(scratch[0]), task.fan_inner
    a, b_, _, _ = _momentum_factors(task)
    base = first // task.inner * task.outer_stride + first % task.inner * task.inner_stride
    sums[:NUM_SUMS] = 0
    for f in range(task.fan_outer):
        at = base + f * task.fan_outer_stride
        if length == 1:
            w = numba.carray(pointer(task.weight + at * size, scratch[0]), (count,))
            g = numba.carray(pointer(task.grad + at * size, scratch[0]), (count,))
            m = momentum_row(mode, task.exp_avg, at, count)
            for b in range(count):
                x, y = np.float64(load(w[b])), np.float64(direction(load(g[b]), m, b, a, b_))
                sums[GG, b] += y * y
                sums[WG, b] += x * y
                sums[G1, b] += y
                sums[W1, b] += x
                sums[WW, b] += x * x
        else:
            for b in range(count):
                five = _sums_float64(scratch, mode, task, at + b * task.inner_stride, length)
                for k in range(NUM_SUMS):
                    sums[k, b] += five[k]


@numba.njit(**_EXACT)
def _write_columns(
    scratch: Any, mode: Any, task: Any, first: int, count: int, turns: Any, marks: Any, noise: Any
) -> None:
    """Write neurons that share an outer loop."""
    size, length = size_of(scratch[0]), task.fan_inner
    a, b_, c, mu = _momentum_factors(task)
    base = first // task.inner * task.outer_stride + first % task.inner * task.inner_stride
    for f in range(task.fan_outer):
        at = base + f * task.fan_outer_stride
        if length == 1 and not task.stochastic_rounding:
            w = numba.carray(pointer(task.weight + at * size, scratch[0]), (count,))
            g = numba.carray(pointer(task.grad + at * size, scratch[0]), (count,))
            m = momentum_row(mode, task.exp_avg, at, count)
            for b in range(count):
                y = direction(load(g[b]), m, b, a, b_)
                new = turns[0, b] * load(w[b]) + (turns[1, b] * y + turns[2, b])
                w[b] = store(new, w[b]) if marks[MOVES, b] else w[b]
                if marks[WRITTEN, b]:
                    advance(load(g[b]), m, b, c, mu, noise + np.uint64(at))
        else:
            for b in range(count):
                start = at + b * task.inner_stride
                if marks[MOVES, b] and task.stochastic_rounding:
                    _write_stochastic(scratch, mode, task, start, length, turns, b, noise)
                elif marks[MOVES, b]:
                    _write(scratch, mode, task, start, length, turns, b, noise)
                elif marks[WRITTEN, b]:
                    _average(scratch, mode, task, start, length, noise)


@_kernel
def walk_elements(
    scratch: Any,
    sums: Any,
    turns: Any,
    marks: Any,
    table: Any,
    chunks: Any,
    skipped: Any,
    mode: Any,
) -> None:
    """Update parameters without fan-in: b <- b - eta * sigma / g_bar * g        (Algorithm 1)."""
    size = size_of(scratch[0])
    for index in range(chunks.shape[0]):
        task = table[chunks[index, 0]]
        first, last = chunks[index, 1], chunks[index, 2]
        skipped[index] = 0
        if task.lr == 0:
            continue
        step, correction, before = _count(task)
        count = last - first
        w = numba.carray(pointer(task.weight + first * size, scratch[0]), (count,))
        g = numba.carray(pointer(task.grad + first * size, scratch[0]), (count,))
        averages = numba.carray(pointer(task.exp_avg_norm + 4 * first, np.float32(0)), (count,))
        rate = task.lr * np.float64(read_at(task.scale, np.float32(0)))
        beta, sign, penalty = task.beta, _sign(task), task.gain_penalty
        propagate, is_peak, num_skipped = task.nonfinite == PROPAGATE, task.norm == PEAK, 0
        noise = _noise_start(task, step)
        m = momentum_row(mode, task.exp_avg, first, count)
        mu, growth = (
            task.momentum,
            np.float32(math.sqrt(correction / before) if before > 0 else 1.0),
        )
        # No branches that differ between elements, so that the loop is vectorized.
        for i in range(count):
            slope = sign * np.float64(load(g[i]))
            # Only with a penalty, since 0 * inf would be a gradient of NaN.
            slope += penalty * (np.float64(load(w[i])) - 1.0) if penalty != 0 else 0.0
            grad = direction(slope, m, i, 1 - mu * mu, mu * mu)
            old, grad_sq = averages[i], grad * grad
            is_behind, least = bits_of(old) >> SIGN != 0, before * grad_sq
            old_sq = np.float64(old) ** 2
            is_short = is_behind & (old_sq < least)
            average_sq = _average_sq(least if is_short else old_sq, grad_sq, beta, is_peak)
            q = np.float32(-rate * math.sqrt(correction / (average_sq if average_sq != 0 else 1.0)))
            average = np.float32(math.sqrt(average_sq))
            average = -average if is_short | (is_behind & (grad_sq == 0)) else average
            is_written = _is_finite(q) & _is_finite(average) | propagate
            num_skipped += np.int64(not is_written)
            kept = abs(old) * growth
            kept = -(LARGEST if kept > LARGEST else kept)
            averages[i] = average if is_written else kept
            new = load(w[i]) + q * np.float32(grad)
            if task.stochastic_rounding:
                new = _round_stochastic(new, w[i], noise, first + i)
            w[i] = store(new, w[i]) if is_written & (grad != 0) else w[i]
            if is_written:
                advance(slope, m, i, 1 - mu, mu, noise + np.uint64(first))
        skipped[index] = num_skipped


@_kernel
def add_counts(table: Any, chunks: Any, skipped: Any) -> None:
    """Add this step and the skipped neurons to every tensor's counters, after all chunks are done."""
    for index in range(chunks.shape[0]):
        if skipped[index]:
            _counter(table[chunks[index, 0]].num_skipped)[0] += skipped[index]
    for index in range(table.shape[0]):
        if table[index].lr != 0:
            _counter(table[index].step)[0] += 1


@numba.njit(**_EXACT)
def _sign(task: Any) -> float:
    return -1.0 if task.maximize else 1.0


@numba.njit(**_EXACT)
def _momentum_factors(task: Any) -> Any:
    """Return a and b of the direction ``a*g + b*m``, and c and mu of the new buffer ``c*g + mu*m``."""
    mu, sign = task.momentum, _sign(task)
    return (
        np.float32(sign * (1 - mu * mu)),
        np.float32(mu * mu),
        np.float32(sign * (1 - mu)),
        np.float32(mu),
    )


@numba.njit(**_EXACT)
def _counter(address: int) -> Any:
    return numba.carray(pointer(address, np.int64(0)), (1,))


@numba.njit(**_EXACT)
def _count(task: Any) -> Any:
    """Return this step's number and bias correction, and the bias correction of the step before."""
    step = read_at(task.step, np.int64(0)) + 1
    if task.norm == PEAK:  # a peak needs neither bias correction nor growth
        return step, 1.0, 0.0
    log_beta = math.log(task.beta) if task.beta > 0 else -math.inf
    before = -math.expm1((step - 1) * log_beta) if step > 1 else 0.0
    return step, -math.expm1(step * log_beta), before


@numba.njit(**_EXACT)
def _turn(
    sign: float, task: Any, correction: float, before: float, first: int, count: int, is_exact: int,
    sums: Any, turns: Any, marks: Any,
) -> int:  # fmt: skip
    """`nero.core.rule.turn_neurons` for ``count`` neurons from ``first``; return how many are skipped.

    Independent of dtype and mode, so that it is compiled once.

    Processes only neurons marked open. They stay open if their sums are not exact and float32 is too rough
    for them (squares out of range, or terms that cancel). No branches, so that the loop is vectorized.
    """
    num_skipped = 0
    n = float(task.fan_outer * task.fan_inner)
    lr, beta, zero_norm = task.lr, task.beta, task.bias_scale
    centre, propagate = task.centre != 0, task.nonfinite == PROPAGATE
    is_peak = task.norm == PEAK
    averages = numba.carray(pointer(task.exp_avg_norm + 4 * first, np.float32(0)), (count,))
    is_free = math.isnan(task.target)
    if task.radius != 0:
        radius = numba.carray(pointer(task.radius + 4 * first, np.float32(0)), (count,))
        for j in range(count):
            sums[TARGET, j] = radius[j]
    num_behind = np.uint32(0)
    for j in range(count):
        sums[OLD_SQ, j] = np.float64(averages[j]) ** 2
        num_behind += bits_of(averages[j]) >> SIGN
    if num_behind:  # These neurons turn by at most lr; see nero.core.average.
        for j in range(count):
            is_behind, least = bits_of(averages[j]) >> SIGN != 0, before * sums[GG, j]
            is_short = is_behind & (sums[OLD_SQ, j] < least)
            sums[OLD_SQ, j] = least if is_short else sums[OLD_SQ, j]
            marks[BEHIND, j] = is_short | (is_behind & (sums[GG, j] == 0))
    threshold = 64 * 2.220446049250313e-16 if is_free else 1.4901161193847656e-08
    for j in range(count):
        ww, sw, wg, gg, sg = (
            sums[WW, j],
            sums[W1, j],
            sign * sums[WG, j],
            sums[GG, j],
            sign * sums[G1, j],
        )
        average_sq = _average_sq(sums[OLD_SQ, j], gg, beta, is_peak)
        k = lr * math.sqrt(ww * correction / (average_sq if average_sq != 0 else 1.0))
        mean = (sw - k * sg) / n if centre else 0.0
        norm_sq = ww - 2 * k * wg + k * k * gg - n * mean * mean
        terms = ww + k * k * gg + 2 * abs(k * wg)
        has_direction = (ww > 0) & (norm_sq > threshold * terms)
        usual = has_direction | (not _is_finite(norm_sq))
        p = 1.0 if is_free else sums[TARGET, j] / math.sqrt(norm_sq if has_direction else 1.0)

        grad_mean = sg / n if centre else 0.0
        grad_norm_sq = gg - n * grad_mean * grad_mean
        grad_has_direction = grad_norm_sq > threshold * gg
        norm = zero_norm if is_free else sums[TARGET, j]
        from_grad = norm / math.sqrt(grad_norm_sq if grad_has_direction else 1.0)

        p32 = np.float32(p if usual else 0.0)
        q32 = np.float32(sign * (-k * p if usual else -from_grad))
        r32 = np.float32(-mean * p if usual else from_grad * grad_mean)
        average = np.float32(math.sqrt(average_sq))
        is_finite = _is_finite(p32) & _is_finite(q32) & _is_finite(r32) & _is_finite(average)
        is_safe = (gg > 1e-20) & (gg < 1e30) & (ww < 1e30) & (norm_sq > 0.1 * terms)
        is_open = marks[OPEN, j]
        is_done = is_open & ((is_exact != 0) | is_safe)
        is_written = is_done & (is_finite | propagate)
        num_skipped += np.int64(is_done & (not is_written))
        averages[j] = average if is_written else averages[j]
        turns[0, j] = p32 if is_done else turns[0, j]
        turns[1, j] = q32 if is_done else turns[1, j]
        turns[2, j] = r32 if is_done else turns[2, j]
        goes = is_written & (gg != 0) & (usual | grad_has_direction)
        marks[MOVES, j] = goes if is_done else marks[MOVES, j]
        marks[WRITTEN, j] = is_written if is_done else marks[WRITTEN, j]
        marks[OPEN, j] = is_open & (not is_done)
        marks[DONE, j] = is_done
    if num_skipped or num_behind:
        growth = np.float32(math.sqrt(correction / before) if before > 0 else 1.0)
        for j in range(count):
            if marks[DONE, j] and not marks[WRITTEN, j]:
                kept = abs(averages[j]) * growth
                averages[j] = -(LARGEST if kept > LARGEST else kept)
            elif marks[DONE, j] and num_behind and marks[BEHIND, j]:
                averages[j] = -averages[j]
    return num_skipped


@numba.njit(forceinline=True, **_EXACT)
def _average_sq(old_sq: float, grad_sq: float, beta: float, is_peak: bool) -> float:
    """Return the square of the running norm of `nero.core.average`, from the old square."""
    faded = beta * beta * old_sq
    peak = faded if (faded > grad_sq) | (faded != faded) else grad_sq  # NaN if either is
    return peak if is_peak else beta * old_sq + (1 - beta) * grad_sq


@numba.njit(**_EXACT)
def _is_finite(x: Any) -> Any:
    return abs(x) < np.inf


@numba.njit(forceinline=True, **_FAST)
def _write_and_sum(
    like: Any, mode: Any, w0_at: int, g0_at: int, averages0: int, m0_at: int, size0: int,
    p: Any, q: Any, r: Any, a: Any, b: Any, c: Any, mu: Any, noise: Any,
    w_at: int, g_at: int, averages: int, m_at: int, fan_in: int,
) -> Any:  # fmt: skip
    """Write one row, w0 <- p*w0 + q*g0 + r, and compute the five sums of another.

    With momentum, g is a*g + b*m, and m0 <- c*g0 + mu*m0.

    ``size0`` is the size of a weight in the row to write, or 0 to write everything to one address. Every
    row is summed here, and rows never overlap (the compiled code would then take another path), so that a
    row's result does not depend on its neighbours.
    """
    total_gg, total_wg, total_sg, total_sw, total_ww = 0.0, 0.0, 0.0, 0.0, 0.0
    size = size_of(like[0])
    for at in range(0, fan_in, BLOCK):
        length = min(BLOCK, fan_in - at)
        w0 = numba.carray(pointer(w0_at + at * size0, like[0]), (length,))
        g0 = numba.carray(pointer(g0_at + at * size0, like[0]), (length,))
        w = numba.carray(pointer(w_at + at * size, like[0]), (length,))
        g = numba.carray(pointer(g_at + at * size, like[0]), (length,))
        at0 = m0_at + at if size0 else 0
        noise0 = noise + np.uint64(at0)
        m0 = momentum_row(mode, averages0, at0, length)
        m = momentum_row(mode, averages, m_at + at, length)
        prefetch_block(w_at + at * size + AHEAD, like[0])
        prefetch_block(g_at + at * size + AHEAD, like[0])
        prefetch_momentum(mode, averages, m_at + at)
        gg, wg, sg = np.float32(0), np.float32(0), np.float32(0)
        sw, ww = np.float32(0), np.float32(0)
        for i in range(length):
            y0 = direction(load(g0[i]), m0, i, a, b)
            w0[i] = store(p * load(w0[i]) + (q * y0 + r), w0[i])
            advance(load(g0[i]), m0, i, c, mu, noise0)
            x, y = load(w[i]), direction(load(g[i]), m, i, a, b)
            gg += y * y
            wg += x * y
            sg += y
            sw += x
            ww += x * x
        total_gg += np.float64(gg)
        total_wg += np.float64(wg)
        total_sg += np.float64(sg)
        total_sw += np.float64(sw)
        total_ww += np.float64(ww)
    return total_ww, total_sw, total_wg, total_gg, total_sg


@numba.njit(**_FAST)
def _sums_float64(like: Any, mode: Any, task: Any, start: int, fan_in: int) -> Any:
    """Sum a row that begins ``start`` weights after the first, entirely in float64."""
    size = size_of(like[0])
    w = numba.carray(pointer(task.weight + start * size, like[0]), (fan_in,))
    g = numba.carray(pointer(task.grad + start * size, like[0]), (fan_in,))
    m = momentum_row(mode, task.exp_avg, start, fan_in)
    a, b, _, _ = _momentum_factors(task)
    gg, wg, sg, sw, ww = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(fan_in):
        x, y = np.float64(load(w[i])), np.float64(direction(load(g[i]), m, i, a, b))
        gg += y * y
        wg += x * y
        sg += y
        sw += x
        ww += x * x
    return ww, sw, wg, gg, sg


@numba.njit(**_FAST)
def _write(
    like: Any, mode: Any, task: Any, start: int, fan_in: int, turns: Any, j: int, noise: Any
) -> None:
    """Write ``w <- p*w + q*g + r`` and the momentum buffer."""
    size = size_of(like[0])
    w = numba.carray(pointer(task.weight + start * size, like[0]), (fan_in,))
    g = numba.carray(pointer(task.grad + start * size, like[0]), (fan_in,))
    m = momentum_row(mode, task.exp_avg, start, fan_in)
    a, b, c, mu = _momentum_factors(task)
    p, q, r = turns[0, j], turns[1, j], turns[2, j]
    for i in range(fan_in):
        y = direction(load(g[i]), m, i, a, b)
        w[i] = store(p * load(w[i]) + (q * y + r), w[i])
        advance(load(g[i]), m, i, c, mu, noise + np.uint64(start))


@numba.njit(**_EXACT)
def _write_stochastic(
    like: Any, mode: Any, task: Any, start: int, fan_in: int, turns: Any, j: int, noise: Any
) -> None:
    w = numba.carray(pointer(task.weight + start * size_of(like[0]), like[0]), (fan_in,))
    g = numba.carray(pointer(task.grad + start * size_of(like[0]), like[0]), (fan_in,))
    m = momentum_row(mode, task.exp_avg, start, fan_in)
    a, b, c, mu = _momentum_factors(task)
    p, q, r = turns[0, j], turns[1, j], turns[2, j]
    for i in range(fan_in):
        new = p * load(w[i]) + (q * direction(load(g[i]), m, i, a, b) + r)
        w[i] = store(_round_stochastic(new, w[i], noise, start + i), w[i])
        advance(load(g[i]), m, i, c, mu, noise + np.uint64(start))


@numba.njit(**_EXACT)
def _average(like: Any, mode: Any, task: Any, start: int, fan_in: int, noise: Any) -> None:
    """Write the momentum buffer of a neuron that does not move."""
    g = numba.carray(pointer(task.grad + start * size_of(like[0]), like[0]), (fan_in,))
    m = momentum_row(mode, task.exp_avg, start, fan_in)
    _, _, c, mu = _momentum_factors(task)
    for i in range(fan_in):
        advance(load(g[i]), m, i, c, mu, noise + np.uint64(start))


# --- stochastic rounding: the hash and the rounding of nero.core.rounding ---


@numba.njit(**_EXACT)
def _noise_start(task: Any, step: int) -> Any:
    seed = mix(mix(mix(np.uint64(task.seed)) + np.uint64(task.position)) + np.uint64(step))
    return seed + np.uint64(task.start)  # the offset of a shard in the full parameter


@numba.njit(**_EXACT)
def _round_stochastic(x: Any, like: Any, noise: Any, position: int) -> Any:
    eps, smallest = precision(like)
    if eps == 0 or not math.isfinite(x):
        return x
    uniform = np.float64(mix(noise + np.uint64(position)) >> np.uint64(40)) * 2.0**-24
    exponent = max(math.frexp(np.float64(x))[1] - 1, smallest)
    spacing = math.ldexp(eps, exponent)
    scaled = np.float64(x) / spacing
    below = math.floor(scaled)
    return np.float32((below + (uniform < scaled - below)) * spacing)
