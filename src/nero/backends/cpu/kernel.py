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
    fused,
    if_momentum,
    is_finite,
    load,
    mix,
    momentum_row,
    pointer,
    precision,
    prefetch_block,
    prefetch_momentum,
    record,
    select,
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
MEMORY = "b3374b66cffe"  # the first digits of the SHA-256 of memory.py
TASK = numba.from_dtype(RECORD)
NEURONS = 128  # the maximum number of neurons processed together
GROUP = 2048  # weights in the rows processed together: they and the rows before them stay in cache
# A thread's scratch space holds arrays with one number per neuron: the sums in the order of nero.core.gram,
# the target norm and the squared average before; the coefficients; the marks. These are offsets in bytes.
WW, W1, WG, GG, G1, TARGET, OLD_SQ = range(0, 56 * NEURONS, 8 * NEURONS)
P, Q, R = range(56 * NEURONS, 68 * NEURONS, 4 * NEURONS)
MOVES, OPEN, WRITTEN, DONE, BEHIND = range(68 * NEURONS, 73 * NEURONS, NEURONS)
NOWHERE = 73 * NEURONS  # takes the writes that belong to no row
SCRATCH_BYTES = NOWHERE + 4 * BLOCK * 4
CHUNK_BYTES = 4 * 8
INT64, FLOAT64, FLOAT32, MARK = np.int64(0), np.float64(0), np.float32(0), np.uint8(0)
IN_FLOAT32, IN_FLOAT64 = 1, 2  # how the sums of an open neuron were computed
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


# All kernels take the same arguments: a number of the type in which weights are stored, one of the type in
# which momentum buffers are (``None`` without momentum), and the addresses of scratch space for one thread,
# of the table, and of chunks of it: (tensor, first neuron, last neuron, number of skipped neurons).
#
# Memory is read through pointers, because numba needs fifty instructions for an access to an array. For the
# same reason, `select` chooses between two numbers.


@_kernel
def walk_rows(like: Any, mode: Any, scratch: int, table: int, chunks: int, num_chunks: int) -> None:
    """Update neurons that are contiguous rows, rounding to nearest.

    A few rows are summed while those before them are written.
    """
    size, nowhere = size_of(like), scratch + NOWHERE
    p, q, r = _turns_of(scratch)
    moves, written = pointer(scratch + MOVES, MARK), pointer(scratch + WRITTEN, MARK)
    is_open = pointer(scratch + OPEN, MARK)
    for index in range(num_chunks):
        chunk = pointer(chunks + index * CHUNK_BYTES, INT64)
        task, first, last = record(table, chunk[0], TASK), chunk[1], chunk[2]
        chunk[3] = 0
        if task.lr == 0:
            continue
        step, correction, before = _count(task)
        noise = _noise_start(task, step)
        fan_in, stride = task.fan_inner, task.outer_stride * size
        a, b, c, mu = _momentum_factors(task)
        sign = if_momentum(mode, 1.0, _sign(task))  # with momentum, the direction includes it
        group = NEURONS if fan_in * NEURONS <= GROUP else 1 if fan_in > GROUP else GROUP // fan_in
        num_waiting = 0  # rows of the group before that are not yet written
        for row in range(first, last + group, group):
            left = last - row
            count = group if left > group else 0 if left < 0 else left
            for j in range(count):
                w, g = task.weight + (row + j) * stride, task.grad + (row + j) * stride
                m = (row + j) * task.outer_stride
                m0 = m - group * task.outer_stride
                # A branch rather than a select: addresses would wait for the turn, a branch is predicted.
                if j < num_waiting and moves[j]:
                    _write_and_sum(
                        like, mode, w - group * stride, g - group * stride, task.exp_avg, m0, size,
                        p[j], q[j], r[j], a, b, c, mu, noise, w, g,
                        task.exp_avg, m, fan_in, scratch + 8 * j,
                    )  # fmt: skip
                else:  # nothing to write
                    _write_and_sum(
                        like, mode, nowhere, nowhere + BLOCK * size, nowhere + 2 * BLOCK * size, 0, 0,
                        *NOTHING, a, b, NOTHING[0], NOTHING[0], noise, w, g,
                        task.exp_avg, m, fan_in, scratch + 8 * j,
                    )  # fmt: skip
            for j in range(count, num_waiting):
                if moves[j]:
                    at = (row - group + j) * task.outer_stride
                    _write(like, mode, task, at, fan_in, p[j], q[j], r[j], noise)
            for j in range(count):
                is_open[j] = IN_FLOAT32
            num_open = count
            while num_open:
                chunk[3] += _turn(sign, task, correction, before, row, count, scratch)
                num_open = 0
                for j in range(count):
                    if is_open[j]:
                        is_open[j] = IN_FLOAT64
                        num_open += 1
                        at = (row + j) * task.outer_stride
                        _put(scratch + 8 * j, _sums_float64(like, mode, task, at, fan_in))
            if mode is not None:  # or nothing is compiled
                for j in range(count):
                    if written[j] and not moves[j]:
                        at = (row + j) * task.outer_stride
                        _average(like, mode, task, at, fan_in, noise)
            num_waiting = count


@_kernel
def walk_columns(
    like: Any, mode: Any, scratch: int, table: int, chunks: int, num_chunks: int
) -> None:
    """Update neurons in any memory order, with any rounding; those of a chunk share an outer loop."""
    for index in range(num_chunks):
        chunk = pointer(chunks + index * CHUNK_BYTES, INT64)
        task, first, count = record(table, chunk[0], TASK), chunk[1], chunk[2] - chunk[1]
        chunk[3] = 0
        if task.lr == 0:
            continue
        step, correction, before = _count(task)
        _sum_columns(like, mode, task, first, count, scratch)
        for b in range(count):
            pointer(scratch + OPEN, MARK)[b] = IN_FLOAT64
        sign = if_momentum(mode, 1.0, _sign(task))
        chunk[3] = _turn(sign, task, correction, before, first, count, scratch)
        noise = _noise_start(task, step)
        _write_columns(like, mode, task, first, count, scratch, noise)


@_kernel
def sum_columns(
    like: Any, mode: Any, scratch: int, table: int, chunks: int, num_chunks: int
) -> None:
    """Sum this rank's part of each neuron, with the direction of the step as the gradient."""
    for index in range(num_chunks):
        chunk = pointer(chunks + index * CHUNK_BYTES, INT64)
        task, first, count = record(table, chunk[0], TASK), chunk[1], chunk[2] - chunk[1]
        _sum_columns(like, mode, task, first, count, scratch)
        total, sign = task.outer * task.inner, if_momentum(mode, 1.0, _sign(task))
        sums, out = pointer(scratch, FLOAT64), pointer(task.gram, FLOAT64)
        for k in range(5):
            times = select((k == 2) | (k == 4), sign, 1.0)  # wg and g1
            for b in range(count):
                out[k * total + first + b] = sums[k * NEURONS + b] * times


@_kernel
def write_columns(
    like: Any, mode: Any, scratch: int, table: int, chunks: int, num_chunks: int
) -> None:
    """Write this rank's part of each neuron, with the given coefficients."""
    for index in range(num_chunks):
        chunk = pointer(chunks + index * CHUNK_BYTES, INT64)
        task, first, count = record(table, chunk[0], TASK), chunk[1], chunk[2] - chunk[1]
        total, sign = task.outer * task.inner, np.float32(if_momentum(mode, 1.0, _sign(task)))
        p, q, r = _turns_of(scratch)
        given = pointer(task.turns + 4 * first, FLOAT32)
        for b in range(count):
            p[b], q[b], r[b] = given[b], given[total + b] * sign, given[2 * total + b]
            pointer(scratch + MOVES, MARK)[b] = pointer(task.moves + first, MARK)[b]
            pointer(scratch + WRITTEN, MARK)[b] = pointer(task.written + first, MARK)[b]
        noise = _noise_start(task, _count(task)[0])
        _write_columns(like, mode, task, first, count, scratch, noise)


@numba.njit(**_EXACT)
def _sum_columns(like: Any, mode: Any, task: Any, first: int, count: int, scratch: int) -> None:
    """Sum, in float64, neurons that share an outer loop."""
    size, length = size_of(like), task.fan_inner
    a, b_, _, _ = _momentum_factors(task)
    base = first // task.inner * task.outer_stride + first % task.inner * task.inner_stride
    for b in range(count):
        _put(scratch + 8 * b, (0.0, 0.0, 0.0, 0.0, 0.0))
    ww, sw, wg, gg, sg = _sums_of(scratch)
    for f in range(task.fan_outer):
        at = base + f * task.fan_outer_stride
        if length == 1:
            w, g = pointer(task.weight + at * size, like), pointer(task.grad + at * size, like)
            m = momentum_row(mode, task.exp_avg, at)
            for b in range(count):
                x, y = np.float64(load(w[b])), np.float64(direction(load(g[b]), m, b, a, b_))
                gg[b] += y * y
                wg[b] += x * y
                sg[b] += y
                sw[b] += x
                ww[b] += x * x
        else:
            for b in range(count):
                start = at + b * task.inner_stride
                more = _sums_float64(like, mode, task, start, length)
                ww[b] += more[0]
                sw[b] += more[1]
                wg[b] += more[2]
                gg[b] += more[3]
                sg[b] += more[4]


@numba.njit(**_EXACT)
def _write_columns(
    like: Any, mode: Any, task: Any, first: int, count: int, scratch: int, noise: Any
) -> None:
    """Write neurons that share an outer loop."""
    size, length = size_of(like), task.fan_inner
    a, b_, c, mu = _momentum_factors(task)
    p, q, r = _turns_of(scratch)
    moves, written = pointer(scratch + MOVES, MARK), pointer(scratch + WRITTEN, MARK)
    base = first // task.inner * task.outer_stride + first % task.inner * task.inner_stride
    for f in range(task.fan_outer):
        at = base + f * task.fan_outer_stride
        if length == 1 and not task.stochastic_rounding:
            w, g = pointer(task.weight + at * size, like), pointer(task.grad + at * size, like)
            m = momentum_row(mode, task.exp_avg, at)
            for b in range(count):
                y = direction(load(g[b]), m, b, a, b_)
                new = p[b] * load(w[b]) + (q[b] * y + r[b])
                w[b] = select(moves[b] != 0, store(new, like), w[b])
                if written[b]:
                    advance(load(g[b]), m, b, c, mu, noise + np.uint64(at))
        else:
            for b in range(count):
                start = at + b * task.inner_stride
                if moves[b] and task.stochastic_rounding:
                    _write_stochastic(like, mode, task, start, length, p[b], q[b], r[b], noise)
                elif moves[b]:
                    _write(like, mode, task, start, length, p[b], q[b], r[b], noise)
                elif written[b]:
                    _average(like, mode, task, start, length, noise)


@_kernel
def walk_elements(
    like: Any, mode: Any, scratch: int, table: int, chunks: int, num_chunks: int
) -> None:
    """Update parameters without fan-in: b <- b - eta * sigma / g_bar * g        (Algorithm 1)."""
    size = size_of(like)
    for index in range(num_chunks):
        chunk = pointer(chunks + index * CHUNK_BYTES, INT64)
        task, first, last = record(table, chunk[0], TASK), chunk[1], chunk[2]
        chunk[3] = 0
        if task.lr == 0:
            continue
        step, correction, before = _count(task)
        count = last - first
        w, g = pointer(task.weight + first * size, like), pointer(task.grad + first * size, like)
        averages = pointer(task.exp_avg_norm + 4 * first, FLOAT32)
        rate = task.lr * np.float64(pointer(task.scale, FLOAT32)[0])
        beta, sign, penalty = task.beta, _sign(task), task.gain_penalty
        propagate, is_peak, num_skipped = task.nonfinite == PROPAGATE, task.norm == PEAK, 0
        noise = _noise_start(task, step)
        m, mu, growth = (
            momentum_row(mode, task.exp_avg, first),
            task.momentum,
            _growth(correction, before),
        )
        # No branches that differ between elements, so that the loop is vectorized.
        for i in range(count):
            slope = sign * np.float64(load(g[i]))
            # Only with a penalty, since 0 * inf would be a gradient of NaN.
            slope += select(penalty != 0, penalty * (np.float64(load(w[i])) - 1.0), 0.0)
            grad = direction(slope, m, i, 1 - mu * mu, mu * mu)
            old, grad_sq = averages[i], grad * grad
            is_behind, least = bits_of(old) >> SIGN != 0, before * grad_sq
            old_sq = np.float64(old) * np.float64(old)
            is_short = is_behind & (old_sq < least)
            average_sq = _average_sq(select(is_short, least, old_sq), grad_sq, beta, is_peak)
            q = np.float32(-rate * math.sqrt(correction / select(average_sq != 0, average_sq, 1.0)))
            average = np.float32(math.sqrt(average_sq))
            average = select(is_short | (is_behind & (grad_sq == 0)), -average, average)
            is_written = is_finite(q) & is_finite(average) | propagate
            num_skipped += select(is_written, 0, 1)
            averages[i] = select(is_written, average, _missed(old, growth))
            new = load(w[i]) + q * np.float32(grad)
            if task.stochastic_rounding:
                new = _round_stochastic(new, like, noise, first + i)
            w[i] = select(is_written & (grad != 0), store(new, like), w[i])
            if is_written:
                advance(slope, m, i, 1 - mu, mu, noise + np.uint64(first))
        chunk[3] = num_skipped


@_kernel
def add_counts(table: int, num_tensors: int, chunks: int, num_chunks: int) -> None:
    """Add this step and the skipped neurons to every tensor's counters, after all chunks are done."""
    for index in range(num_chunks):
        chunk = pointer(chunks + index * CHUNK_BYTES, INT64)
        if chunk[3]:
            pointer(record(table, chunk[0], TASK).num_skipped, INT64)[0] += chunk[3]
    for index in range(num_tensors):
        task = record(table, index, TASK)
        if task.lr != 0:
            pointer(task.step, INT64)[0] += 1


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
def _count(task: Any) -> Any:
    """Return this step's number and bias correction, and the bias correction of the step before."""
    step = pointer(task.step, INT64)[0] + 1
    if task.norm == PEAK:  # a peak needs neither bias correction nor growth
        return step, 1.0, 0.0
    log_beta = math.log(task.beta) if task.beta > 0 else -math.inf
    before = -math.expm1((step - 1) * log_beta) if step > 1 else 0.0
    return step, -math.expm1(step * log_beta), before


@numba.njit(**_EXACT)
def _growth(correction: float, before: float) -> Any:
    """Return by how much a running norm that keeps its place grows, as its bias correction does."""
    return np.float32(math.sqrt(correction / before) if before > 0 else 1.0)


@numba.njit(**_EXACT)
def _missed(average: Any, growth: Any) -> Any:
    """Return the running norm of a neuron that was skipped."""
    kept = abs(average) * growth
    return -select(kept > LARGEST, LARGEST, kept)


@numba.njit(**_EXACT)
def _sums_of(scratch: int) -> Any:
    return (
        pointer(scratch + WW, FLOAT64),
        pointer(scratch + W1, FLOAT64),
        pointer(scratch + WG, FLOAT64),
        pointer(scratch + GG, FLOAT64),
        pointer(scratch + G1, FLOAT64),
    )


@numba.njit(**_EXACT)
def _turns_of(scratch: int) -> Any:
    return (
        pointer(scratch + P, FLOAT32),
        pointer(scratch + Q, FLOAT32),
        pointer(scratch + R, FLOAT32),
    )


@numba.njit(**_EXACT)
def _put(sums: int, five: Any) -> None:
    """Write the sums of one neuron."""
    ww, sw, wg, gg, sg = _sums_of(sums)
    ww[0], sw[0], wg[0], gg[0], sg[0] = five


@numba.njit(**_EXACT)
def _turn(
    sign: float, task: Any, correction: float, before: float, first: int, count: int, scratch: int
) -> int:
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
    is_free = math.isnan(task.target)
    averages = pointer(task.exp_avg_norm + 4 * first, FLOAT32)
    ww_of, sw_of, wg_of, gg_of, sg_of = _sums_of(scratch)
    target, old_sq = pointer(scratch + TARGET, FLOAT64), pointer(scratch + OLD_SQ, FLOAT64)
    p_of, q_of, r_of = _turns_of(scratch)
    opened, done = pointer(scratch + OPEN, MARK), pointer(scratch + DONE, MARK)
    moves, written = pointer(scratch + MOVES, MARK), pointer(scratch + WRITTEN, MARK)
    behind = pointer(scratch + BEHIND, MARK)
    for j in range(count):
        target[j] = task.target
    if task.radius != 0:
        for j in range(count):
            target[j] = pointer(task.radius + 4 * first, FLOAT32)[j]
    num_behind = np.uint32(0)
    for j in range(count):
        old_sq[j] = np.float64(averages[j]) * np.float64(averages[j])
        num_behind += bits_of(averages[j]) >> SIGN
    if num_behind:  # These neurons turn by at most lr; see nero.core.average.
        for j in range(count):
            is_behind, least = bits_of(averages[j]) >> SIGN != 0, before * gg_of[j]
            is_short = is_behind & (old_sq[j] < least)
            old_sq[j] = select(is_short, least, old_sq[j])
            behind[j] = is_short | (is_behind & (gg_of[j] == 0))
    threshold = 64 * 2.220446049250313e-16 if is_free else 1.4901161193847656e-08
    for j in range(count):
        ww, sw, wg, gg, sg = ww_of[j], sw_of[j], sign * wg_of[j], gg_of[j], sign * sg_of[j]
        average_sq = _average_sq(old_sq[j], gg, beta, is_peak)
        k = lr * math.sqrt(ww * correction / select(average_sq != 0, average_sq, 1.0))
        mean = select(centre, (sw - k * sg) / n, 0.0)
        norm_sq = ww - 2 * k * wg + k * k * gg - n * mean * mean
        terms = ww + k * k * gg + 2 * abs(k * wg)
        has_direction = (ww > 0) & (norm_sq > threshold * terms)
        usual = has_direction | (not is_finite(norm_sq))
        p = select(is_free, 1.0, target[j] / math.sqrt(select(has_direction, norm_sq, 1.0)))

        grad_mean = select(centre, sg / n, 0.0)
        grad_norm_sq = gg - n * grad_mean * grad_mean
        grad_has_direction = grad_norm_sq > threshold * gg
        norm = select(is_free, zero_norm, target[j])
        from_grad = norm / math.sqrt(select(grad_has_direction, grad_norm_sq, 1.0))

        p32 = np.float32(select(usual, p, 0.0))
        q32 = np.float32(sign * select(usual, -k * p, -from_grad))
        r32 = np.float32(select(usual, -mean * p, from_grad * grad_mean))
        average = np.float32(math.sqrt(average_sq))
        finite = is_finite(p32) & is_finite(q32) & is_finite(r32) & is_finite(average)
        is_safe = (gg > 1e-20) & (gg < 1e30) & (ww < 1e30) & (norm_sq > 0.1 * terms)
        is_open = opened[j] != 0
        is_done = is_open & ((opened[j] == IN_FLOAT64) | is_safe)
        is_written = is_done & (finite | propagate)
        num_skipped += select(is_done & (not is_written), 1, 0)
        averages[j] = select(is_written, average, averages[j])
        p_of[j] = select(is_done, p32, p_of[j])
        q_of[j] = select(is_done, q32, q_of[j])
        r_of[j] = select(is_done, r32, r_of[j])
        goes = is_written & (gg != 0) & (usual | grad_has_direction)
        moves[j] = select(is_done, np.uint8(goes), moves[j])
        written[j] = select(is_done, np.uint8(is_written), written[j])
        opened[j] = is_open & (not is_done)
        done[j] = is_done
    if num_skipped or num_behind:
        growth = _growth(correction, before)
        for j in range(count):
            if done[j] and not written[j]:
                averages[j] = _missed(averages[j], growth)
            elif done[j] and num_behind and behind[j]:
                averages[j] = -averages[j]
    return num_skipped


@numba.njit(forceinline=True, **_EXACT)
def _average_sq(old_sq: float, grad_sq: float, beta: float, is_peak: bool) -> float:
    """Return the square of the running norm of `nero.core.average`, from the old square."""
    faded = beta * beta * old_sq
    peak = select((faded > grad_sq) | (faded != faded), faded, grad_sq)  # NaN if either is
    return select(is_peak, peak, beta * old_sq + (1 - beta) * grad_sq)


@numba.njit(forceinline=True, **_FAST)
def _write_and_sum(
    like: Any, mode: Any, w0_at: int, g0_at: int, averages0: int, m0_at: int, size0: int,
    p: Any, q: Any, r: Any, a: Any, b: Any, c: Any, mu: Any, noise: Any,
    w_at: int, g_at: int, averages: int, m_at: int, fan_in: int, sums: int,
) -> None:  # fmt: skip
    """Write one row, w0 <- p*w0 + q*g0 + r, and write the five sums of another.

    With momentum, g is a*g + b*m, and m0 <- c*g0 + mu*m0.

    ``size0`` is the size of a weight in the row to write, or 0 to write everything to one address. Every
    row is summed here, and rows never overlap (the compiled code would then take another path), so that a
    row's result does not depend on its neighbours.
    """
    total_gg, total_wg, total_sg, total_sw, total_ww = 0.0, 0.0, 0.0, 0.0, 0.0
    size = size_of(like)
    for at in range(0, fan_in, BLOCK):
        length = BLOCK if fan_in - at > BLOCK else fan_in - at
        w0, g0 = pointer(w0_at + at * size0, like), pointer(g0_at + at * size0, like)
        w, g = pointer(w_at + at * size, like), pointer(g_at + at * size, like)
        at0 = m0_at + at if size0 else 0
        noise0 = noise + np.uint64(at0)
        m0 = momentum_row(mode, averages0, at0)
        m = momentum_row(mode, averages, m_at + at)
        prefetch_block(w_at + at * size + AHEAD, like)
        prefetch_block(g_at + at * size + AHEAD, like)
        prefetch_momentum(mode, averages, m_at + at)
        gg, wg, sg = np.float32(0), np.float32(0), np.float32(0)
        sw, ww = np.float32(0), np.float32(0)
        for i in range(length):
            y0 = direction(load(g0[i]), m0, i, a, b)
            w0[i] = store(fused(p, load(w0[i]), fused(q, y0, r)), like)
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
    _put(sums, (total_ww, total_sw, total_wg, total_gg, total_sg))


@numba.njit(**_FAST)
def _sums_float64(like: Any, mode: Any, task: Any, start: int, fan_in: int) -> Any:
    """Sum a row that begins ``start`` weights after the first, entirely in float64."""
    at = start * size_of(like)
    w, g = pointer(task.weight + at, like), pointer(task.grad + at, like)
    m = momentum_row(mode, task.exp_avg, start)
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
    like: Any, mode: Any, task: Any, start: int, fan_in: int, p: Any, q: Any, r: Any, noise: Any
) -> None:
    """Write ``w <- p*w + q*g + r`` and the momentum buffer."""
    at = start * size_of(like)
    w, g = pointer(task.weight + at, like), pointer(task.grad + at, like)
    m = momentum_row(mode, task.exp_avg, start)
    a, b, c, mu = _momentum_factors(task)
    for i in range(fan_in):
        y = direction(load(g[i]), m, i, a, b)
        w[i] = store(fused(p, load(w[i]), fused(q, y, r)), like)
        advance(load(g[i]), m, i, c, mu, noise + np.uint64(start))


@numba.njit(**_EXACT)
def _write_stochastic(
    like: Any, mode: Any, task: Any, start: int, fan_in: int, p: Any, q: Any, r: Any, noise: Any
) -> None:
    at = start * size_of(like)
    w, g = pointer(task.weight + at, like), pointer(task.grad + at, like)
    m = momentum_row(mode, task.exp_avg, start)
    a, b, c, mu = _momentum_factors(task)
    for i in range(fan_in):
        new = p * load(w[i]) + (q * direction(load(g[i]), m, i, a, b) + r)
        w[i] = store(_round_stochastic(new, like, noise, start + i), like)
        advance(load(g[i]), m, i, c, mu, noise + np.uint64(start))


@numba.njit(**_EXACT)
def _average(like: Any, mode: Any, task: Any, start: int, fan_in: int, noise: Any) -> None:
    """Write the momentum buffer of a neuron that does not move."""
    g = pointer(task.grad + start * size_of(like), like)
    m = momentum_row(mode, task.exp_avg, start)
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
    exponent = math.frexp(np.float64(x))[1] - 1
    exponent = smallest if exponent < smallest else exponent
    spacing = math.ldexp(eps, exponent)
    scaled = np.float64(x) / spacing
    below = math.floor(scaled)
    return np.float32((below + (uniform < scaled - below)) * spacing)
