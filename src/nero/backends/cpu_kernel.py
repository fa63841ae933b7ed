"""The CPU kernel: numba code that walks addresses, and knows nothing of torch.

A row is read once, for its five sums, and written once while it is still in cache: the memory traffic of
plain SGD. Sums run in float32 over blocks of 128, added up in float64 (their relative error is about
1e-8, below the rounding of a float32 coefficient); where squares leave float32's range they are taken
again in float64 throughout. The compiler may reorder sums, but may not assume that NaN and inf do not
occur. While a row is summed and written, the next one is fetched.

This module imports numba; `nero.backends.cpu` imports it when it is first needed.
"""

import math
from typing import Any

import numba
import numpy as np

from nero.backends.cpu_memory import (
    BLOCK,
    load,
    pointer,
    precision,
    prefetch_block,
    read_at,
    size_of,
    store,
)

# One record a tensor. Addresses and counts are int64; strides count elements.
RECORD = np.dtype(
    [
        *((name, np.int64) for name in ("weight", "grad", "avg_norm", "radius", "scale", "step")),
        *((name, np.int64) for name in ("outer", "fan_outer", "inner", "fan_inner")),
        *((name, np.int64) for name in ("outer_stride", "fan_outer_stride", "inner_stride")),
        *((name, np.int64) for name in ("is_elements", "centre", "propagate", "stochastic")),
        *((name, np.int64) for name in ("seed", "stream")),
        *((name, np.float64) for name in ("lr", "beta", "target", "zero_norm", "penalty", "sign")),
    ]
)
COLUMNS = 128  # neurons of a chunk that lie side by side

_FAST: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz"},
}
_EXACT = {**_FAST, "fastmath": False}


@numba.njit(**_EXACT)
def run(like: Any, table: Any, chunks: Any, skipped: Any) -> None:
    """Update the neurons ``first`` to ``last`` of each chunk ``(tensor, first, last)``.

    ``like`` is an empty array that says how weights are stored: float32; uint16 for bfloat16; int16 for
    float16. ``skipped`` gets, for each chunk, how many neurons were not finite.
    """
    for index in range(chunks.shape[0]):
        task = table[chunks[index, 0]]
        first, last = chunks[index, 1], chunks[index, 2]
        if task.lr == 0:
            continue
        step = read_at(task.step, np.int64(0)) + 1
        correction = 1.0
        if task.beta > 0:
            correction = -math.expm1(step * math.log(task.beta))
        if task.is_elements:
            skipped[index] = _elements(like, task, first, last, step, correction)
        elif task.fan_outer == 1 and task.inner == 1:
            skipped[index] = _rows(like, task, first, last, step, correction)
        else:
            skipped[index] = _columns(like, task, first, last, step, correction)


@numba.njit(**_EXACT)
def _rows(like: Any, task: Any, first: int, last: int, step: int, correction: float) -> int:
    num_skipped = 0
    fan_in = task.fan_inner
    stride = task.outer_stride * size_of(like[0])
    averages = numba.carray(pointer(task.avg_norm, np.float32(0)), (task.outer,))
    weight, grad, radius, sign = task.weight, task.grad, task.radius, task.sign
    propagate, stochastic, fixed_target = task.propagate != 0, task.stochastic != 0, task.target
    lr, beta, centre, zero_norm = task.lr, task.beta, task.centre != 0, task.zero_norm
    for row in range(first, last):
        w_at, g_at = weight + row * stride, grad + row * stride
        w = numba.carray(pointer(w_at, like[0]), (fan_in,))
        g = numba.carray(pointer(g_at, like[0]), (fan_in,))
        gg, wg, sg, sw, ww = _sums(w, g, w_at + stride if row + 1 < last else w_at)
        if not (1e-20 < gg < 1e30 and ww < 1e30):
            gg, wg, sg, sw, ww = _sums_float64(w, g)
        target = fixed_target if radius == 0 else read_at(radius + 4 * row, np.float32(0))
        p, q, r, average, moves, is_finite = _turn(
            gg, sign * wg, sign * sg, sw, ww, averages[row], fan_in,
            lr, beta, correction, centre, target, zero_norm, sign,
        )  # fmt: skip
        num_skipped += not is_finite and not propagate
        if is_finite or propagate:
            averages[row] = average
            if moves and not stochastic:
                _write(w, g, p, q, r, g_at + stride if row + 1 < last else g_at)
            elif moves:
                start = row * task.outer_stride
                _write_stochastic(w, g, p, q, r, _noise_start(task, step), start)
    return num_skipped


@numba.njit(**_FAST)
def _columns(like: Any, task: Any, first: int, last: int, step: int, correction: float) -> int:
    """Neurons whose weights do not lie together: numbers ``first`` to ``last``, of one outer loop."""
    num_skipped = 0
    outer, b0 = first // task.inner, first % task.inner
    count = last - first
    size = size_of(like[0])
    base = outer * task.outer_stride + b0 * task.inner_stride
    averages = numba.carray(pointer(task.avg_norm, np.float32(0)), (task.outer * task.inner,))
    sums = np.zeros((5, count))
    for f in range(task.fan_outer):
        at = (base + f * task.fan_outer_stride) * size
        w = numba.carray(pointer(task.weight + at, like[0]), (count * max(task.inner_stride, 1),))
        g = numba.carray(pointer(task.grad + at, like[0]), (count * max(task.inner_stride, 1),))
        if task.fan_inner == 1:
            for b in range(count):
                x, y = np.float64(load(w[b])), np.float64(load(g[b]))
                sums[0, b] += y * y
                sums[1, b] += x * y
                sums[2, b] += y
                sums[3, b] += x
                sums[4, b] += x * x
        else:
            for b in range(count):
                start = b * task.inner_stride
                stop = start + task.fan_inner
                gg, wg, sg, sw, ww = _sums_float64(w[start:stop], g[start:stop])
                sums[0, b] += gg
                sums[1, b] += wg
                sums[2, b] += sg
                sums[3, b] += sw
                sums[4, b] += ww
    p, q, r = np.empty(count, np.float32), np.empty(count, np.float32), np.empty(count, np.float32)
    moves = np.empty(count, np.bool_)
    fan_in = task.fan_outer * task.fan_inner
    for b in range(count):
        neuron = first + b
        target = (
            task.target if task.radius == 0 else read_at(task.radius + 4 * neuron, np.float32(0))
        )
        p[b], q[b], r[b], average, is_moving, is_finite = _turn(
            sums[0, b], task.sign * sums[1, b], task.sign * sums[2, b], sums[3, b], sums[4, b],
            averages[neuron], fan_in,
            task.lr, task.beta, correction, task.centre != 0, target, task.zero_norm, task.sign,
        )  # fmt: skip
        num_skipped += not is_finite and not task.propagate
        moves[b] = is_moving and (is_finite or task.propagate != 0)
        if is_finite or task.propagate:
            averages[neuron] = average
    noise = _noise_start(task, step)
    for f in range(task.fan_outer):
        offset = base + f * task.fan_outer_stride
        w = numba.carray(
            pointer(task.weight + offset * size, like[0]), (count * max(task.inner_stride, 1),)
        )
        g = numba.carray(
            pointer(task.grad + offset * size, like[0]), (count * max(task.inner_stride, 1),)
        )
        if task.fan_inner == 1 and not task.stochastic:
            for b in range(count):
                x = load(w[b])
                new = p[b] * x + (q[b] * load(g[b]) + r[b])
                w[b] = store(new, w[b]) if moves[b] else w[b]
        else:
            for b in range(count):
                start = b * task.inner_stride
                stop = start + task.fan_inner
                if moves[b] and task.stochastic:
                    _write_stochastic(
                        w[start:stop], g[start:stop], p[b], q[b], r[b], noise, offset + start
                    )
                elif moves[b]:
                    _write(w[start:stop], g[start:stop], p[b], q[b], r[b], np.int64(0))
    return num_skipped


@numba.njit(**_EXACT)
def _elements(like: Any, task: Any, first: int, last: int, step: int, correction: float) -> int:
    """Parameters without fan-in: b <- b - eta * sigma / g_bar * g        (Algorithm 1)."""
    num_skipped = 0
    stride = task.outer_stride
    w = numba.carray(pointer(task.weight, like[0]), (task.outer * stride + 1,))
    g = numba.carray(pointer(task.grad, like[0]), (task.outer * stride + 1,))
    averages = numba.carray(pointer(task.avg_norm, np.float32(0)), (task.outer,))
    scale = np.float64(read_at(task.scale, np.float32(0)))
    noise = _noise_start(task, step)
    for i in range(first, last):
        at = i * stride
        grad = task.sign * np.float64(load(g[at]))
        grad = grad + task.penalty * (np.float64(load(w[at])) - 1.0)
        average_sq = task.beta * np.float64(averages[i]) ** 2 + (1 - task.beta) * grad * grad
        denominator = average_sq if average_sq != 0 else 1.0
        q = np.float32(-task.lr * scale * math.sqrt(correction / denominator))
        average = np.float32(math.sqrt(average_sq))
        is_finite = math.isfinite(q) and math.isfinite(average)
        num_skipped += not is_finite and not task.propagate
        if is_finite or task.propagate:
            averages[i] = average
            if grad != 0:
                new = load(w[at]) + q * np.float32(grad)
                if task.stochastic:
                    w[at] = store(_round_stochastic(new, w[at], noise, i), w[at])
                else:
                    w[at] = store(new, w[at])
    return num_skipped


@numba.njit(**_EXACT)
def _turn(
    gg: float, wg: float, sg: float, sw: float, ww: float, average: float, n: int,
    lr: float, beta: float, correction: float,
    centre: bool, target: float, zero_norm: float, sign: float,
) -> Any:  # fmt: skip
    """`nero.functional.turn_neurons` for one neuron; ``target`` is NaN where the norm is free."""
    average_sq = beta * np.float64(average) ** 2 + (1 - beta) * gg
    k = lr * math.sqrt(ww * correction / (average_sq if average_sq != 0 else 1.0))
    mean = (sw - k * sg) / n if centre else 0.0
    norm_sq = ww - 2 * k * wg + k * k * gg - n * mean * mean
    is_free = math.isnan(target)
    noise = 64 * 2.220446049250313e-16 if is_free else 1.4901161193847656e-08
    has_direction = ww > 0 and norm_sq > noise * (ww + k * k * gg + 2 * abs(k * wg))
    grad_has_direction = False
    if has_direction or not math.isfinite(norm_sq):
        p = 1.0 if is_free else target / math.sqrt(norm_sq if has_direction else 1.0)
        q, r = -k * p, -mean * p
        moves = gg != 0
    else:
        grad_mean = sg / n if centre else 0.0
        grad_norm_sq = gg - n * grad_mean * grad_mean
        grad_has_direction = grad_norm_sq > noise * gg
        start = (zero_norm if is_free else target) / math.sqrt(
            grad_norm_sq if grad_has_direction else 1.0
        )
        p, q, r = 0.0, -start, start * grad_mean
        moves = gg != 0 and grad_has_direction
    new_average = np.float32(math.sqrt(average_sq))
    p_, q_, r_ = np.float32(p), np.float32(q * sign), np.float32(r)
    is_finite = (
        math.isfinite(p_) and math.isfinite(q_) and math.isfinite(r_) and math.isfinite(new_average)
    )
    return p_, q_, r_, new_average, moves, is_finite


@numba.njit(**_FAST)
def _sums(w: Any, g: Any, next_row: int) -> Any:
    """Compute the five sums of a row, in float32 over blocks; fetches ``next_row`` meanwhile."""
    total_gg, total_wg, total_sg, total_sw, total_ww = 0.0, 0.0, 0.0, 0.0, 0.0
    num_blocks = w.size // BLOCK
    for block in range(num_blocks):
        at = block * BLOCK
        prefetch_block(next_row + at * size_of(w[0]), w[0])
        gg, wg, sg = np.float32(0), np.float32(0), np.float32(0)
        sw, ww = np.float32(0), np.float32(0)
        for i in range(BLOCK):
            x, y = load(w[at + i]), load(g[at + i])
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
    rest = num_blocks * BLOCK
    if rest == w.size:
        return total_gg, total_wg, total_sg, total_sw, total_ww
    gg64, wg64, sg64, sw64, ww64 = _sums_float64(w[rest:], g[rest:])
    return (
        total_gg + gg64, total_wg + wg64, total_sg + sg64, total_sw + sw64, total_ww + ww64,
    )  # fmt: skip


@numba.njit(**_FAST)
def _sums_float64(w: Any, g: Any) -> Any:
    gg, wg, sg, sw, ww = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(w.size):
        x, y = np.float64(load(w[i])), np.float64(load(g[i]))
        gg += y * y
        wg += x * y
        sg += y
        sw += x
        ww += x * x
    return gg, wg, sg, sw, ww


@numba.njit(**_FAST)
def _write(w: Any, g: Any, p: Any, q: Any, r: Any, next_row: int) -> None:
    """W <- p*w + q*g + r; fetches ``next_row`` meanwhile."""
    num_blocks = w.size // BLOCK
    for block in range(num_blocks):
        at = block * BLOCK
        prefetch_block(next_row + at * size_of(w[0]), w[0])
        for i in range(BLOCK):
            new = p * load(w[at + i]) + (q * load(g[at + i]) + r)
            w[at + i] = store(new, w[at + i])
    for i in range(num_blocks * BLOCK, w.size):
        w[i] = store(p * load(w[i]) + (q * load(g[i]) + r), w[i])


@numba.njit(**_EXACT)
def _write_stochastic(w: Any, g: Any, p: Any, q: Any, r: Any, noise: int, start: int) -> None:
    for i in range(w.size):
        new = p * load(w[i]) + (q * load(g[i]) + r)
        w[i] = store(_round_stochastic(new, w[i], noise, start + i), w[i])


# --- stochastic rounding: the hash and the rounding of nero.functional.rounding ---


@numba.njit(**_EXACT)
def _mix(x: Any) -> Any:
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@numba.njit(**_EXACT)
def _noise_start(task: Any, step: int) -> Any:
    return _mix(_mix(_mix(np.uint64(task.seed)) + np.uint64(task.stream)) + np.uint64(step))


@numba.njit(**_EXACT)
def _round_stochastic(x: Any, like: Any, noise: Any, position: int) -> Any:
    eps, smallest = precision(like)
    if eps == 0 or not math.isfinite(x):
        return x
    uniform = np.float64(_mix(noise + np.uint64(position)) >> np.uint64(40)) * 2.0**-24
    exponent = max(math.frexp(np.float64(x))[1] - 1, smallest)
    spacing = math.ldexp(eps, exponent)
    scaled = np.float64(x) / spacing
    below = math.floor(scaled)
    return np.float32((below + (uniform < scaled - below)) * spacing)
