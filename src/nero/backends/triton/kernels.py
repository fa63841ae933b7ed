"""The kernels of `nero.backends.triton.launch`, which imports them at its first step.

A kernel sees the model as a table: one row of `INTEGERS` (addresses, sizes, flags) and one of `NUMBERS` per
tensor. A program processes one tile of a tensor: some elements, or some neurons by a block of their fan-in.
The first block stays in registers between the reading and the writing pass, so a neuron that fits into it
costs the memory traffic of SGD; the rest of a longer one is read twice. A launch for rows of up to `KEPT`
weights has more warps, and keeps whole rows.

`AVERAGE` is the dtype of the momentum buffer, or ``None`` without one. `PHASE` is the whole step, or one
half of it if the fan-in is sharded: the sums, in float64 since no rank sees whether terms cancel, or the
new rows, from coefficients that all ranks have.

The arithmetic is that of `nero.core.rule`, name by name. Elements are processed only in float32, because
consumer GPUs run float64 at 1/64 of the float32 rate. As in the CPU kernel, sums run in float32 over a
block and are accumulated in float64; coefficients are float64, once per neuron. If squares leave float32's
range or terms cancel, a neuron is summed again entirely in float64. Nothing here may assume that NaN and
inf do not occur.
"""

import triton
import triton.language as tl

from nero.backends.triton.table import INTEGERS, NUMBERS, TILES, Kind, Phase
from nero.backends.triton.table import NUM_FACTORS as _NUM_FACTORS
from nero.core.rounding import _BITS, _INCREMENT, _MULTIPLIERS
from nero.core.spec import PEAK as _PEAK
from nero.core.spec import PROPAGATE as _PROPAGATE


def _columns(names, *wanted):
    return (tl.constexpr(names.index(name)) for name in wanted)


# Column numbers in the table.
WEIGHT, GRAD = _columns(INTEGERS, "weight", "grad")
STEP, NUM_SKIPPED, SCALE = _columns(INTEGERS, "step", "num_skipped", "scale")
EXP_AVG, EXP_AVG_NORM, RADIUS = _columns(INTEGERS, "exp_avg", "exp_avg_norm", "radius")
LR, LR_IS_FLOAT64, FIRST_TILE, KIND = _columns(
    INTEGERS, "lr", "lr_is_float64", "first_tile", "kind"
)
FAN_IN, FAN_INNER, INNER = _columns(INTEGERS, "fan_in", "fan_inner", "inner")
OUTER_STRIDE, FAN_OUTER_STRIDE = _columns(INTEGERS, "outer_stride", "fan_outer_stride")
INNER_STRIDE, POSITION, START = _columns(INTEGERS, "inner_stride", "position", "start")
CENTRE, MAXIMIZE, NONFINITE, SEED = _columns(INTEGERS, "centre", "maximize", "nonfinite", "seed")
(NORM,) = _columns(INTEGERS, "norm")
GRAM, TURNS, MOVES, WRITTEN, NUM_NEURONS = _columns(
    INTEGERS, "gram", "turns", "moves", "written", "num_neurons"
)
BETA, LOG_BETA, TARGET, INVERSE_FAN_IN = _columns(
    NUMBERS, "beta", "log_beta", "target", "inverse_fan_in"
)
BIAS_SCALE, GAIN_PENALTY, MOMENTUM = _columns(NUMBERS, "bias_scale", "gain_penalty", "momentum")
ROW_LENGTH, NUMBERS_LENGTH = tl.constexpr(len(INTEGERS)), tl.constexpr(len(NUMBERS))
PROPAGATE, PEAK = tl.constexpr(_PROPAGATE), tl.constexpr(_PEAK)
WHOLE, SUMS, ROWS = (tl.constexpr(int(phase)) for phase in Phase)
ELEMENTS, _, FIRST_ALIGNED, *_, ROWS_1024, LONG, COLUMNS, STRIDED = (
    tl.constexpr(int(kind)) for kind in Kind
)
NUM_ELEMENTS, NUM_KINDS = tl.constexpr(TILES[Kind.ELEMENTS][0]), tl.constexpr(len(Kind))
NEURONS_OF = tl.constexpr(tuple(TILES[kind][0] for kind in Kind))
BLOCK_OF = tl.constexpr(tuple(TILES[kind][1] for kind in Kind))
# The float64 thresholds of turn_neurons.
FREE_THRESHOLD, THRESHOLD = tl.constexpr(64 * 2.0**-52), tl.constexpr(2.0**-26)
# Float32 sums are accurate enough within this range, if at most half of the terms cancels.
SMALLEST_SUM, LARGEST_SUM = tl.constexpr(1e-20), tl.constexpr(1e30)
# Weights of a block when neurons are summed again, which must not increase register use.
EXACT_BLOCK = tl.constexpr(128)
INCREMENT, FIRST_MULTIPLIER, SECOND_MULTIPLIER = map(tl.constexpr, (_INCREMENT, *_MULTIPLIERS))
# Averages below the smallest normal number count as zero.
SMALLEST_32, SMALLEST_64 = tl.constexpr(2.0**-126), tl.constexpr(2.0**-1022)
LARGEST_32 = tl.constexpr((2 - 2.0**-23) * 2.0**127)
LARGEST_64 = tl.constexpr((2 - 2.0**-52) * 2.0**1023)
# Per-tensor factors: lr, lr*sqrt(1 - beta^t), 1 - beta^t, and the growth of skipped neurons' averages.
NUM_FACTORS = tl.constexpr(_NUM_FACTORS)
NOISE_BITS, NOISE_UNIT = tl.constexpr(_BITS), tl.constexpr(2.0**-_BITS)
NOISE_MASK = tl.constexpr((1 << _BITS) - 1)


@triton.jit
def advance_kernel(table, numbers, factors, seeds, num_tensors, BLOCK: tl.constexpr):
    """Count the step, and compute every tensor's factors and seed."""
    tensor = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = tensor < num_tensors
    row = table + tensor * ROW_LENGTH
    address, is_float64 = tl.load(row + LR, mask, 0), tl.load(row + LR_IS_FLOAT64, mask, 0) != 0
    double = tl.load(address.to(tl.pointer_type(tl.float64)), mask & is_float64, 0.0)
    single = tl.load(address.to(tl.pointer_type(tl.float32)), mask & (is_float64 == 0), 0.0)
    lr = tl.where(is_float64, double, single.to(tl.float64))
    count = tl.load(row + STEP, mask, 0).to(tl.pointer_type(tl.int64))
    step = tl.load(count, mask, 0) + 1
    # A step at lr = 0 changes nothing, not even a counter.
    tl.store(count, step, mask & (lr != 0))

    # 1 - beta^t; Triton has no expm1, and cancellation costs a relative error of 1e-16/(1 - beta).
    log_beta = tl.load(numbers + tensor * NUMBERS_LENGTH + LOG_BETA, mask, -1.0)
    correction = 1 - tl.exp(step.to(tl.float64) * log_beta)
    before = 1 - tl.exp(tl.maximum(step - 1, 1).to(tl.float64) * log_beta)
    factor = factors + NUM_FACTORS * tensor
    tl.store(factor, lr, mask)
    tl.store(factor + 1, lr * tl.sqrt(correction), mask)
    tl.store(factor + 2, correction, mask)
    tl.store(factor + 3, tl.sqrt(correction / before), mask)
    seed = _mix(_mix(tl.load(row + SEED, mask, 0)) + tl.load(row + POSITION, mask, 0))
    # A shard draws the noise of its positions in the full parameter.
    tl.store(seeds + tensor, _mix(seed + step) + tl.load(row + START, mask, 0), mask)


@triton.jit
def step_kernel(
    table, numbers, factors, seeds, tiles,
    DTYPE: tl.constexpr, STOCHASTIC: tl.constexpr, AVERAGE: tl.constexpr,
    PHASE: tl.constexpr = WHOLE, KEPT: tl.constexpr = 0,
):  # fmt: skip
    """Update one tile: weights, averages and the number of skipped neurons."""
    program = tl.program_id(0)
    tensor = tl.load(tiles + program).to(tl.int64)
    row, number = table + tensor * ROW_LENGTH, numbers + tensor * NUMBERS_LENGTH
    factor = factors + NUM_FACTORS * tensor
    if PHASE == WHOLE and tl.load(factor) == 0:
        return  # A step at lr = 0 changes nothing.
    tile = program - tl.load(row + FIRST_TILE)
    seed = tl.load(seeds + tensor)
    if KEPT:
        _neurons(row, number, factor, seed, tile, ROWS_1024, 1, KEPT, DTYPE, STOCHASTIC, AVERAGE)
        return
    kind = tl.load(row + KIND)
    if kind == ELEMENTS:
        _elements(row, number, factor, seed, tile, DTYPE, STOCHASTIC, AVERAGE)
    for WALK in tl.static_range(1, NUM_KINDS):
        if kind == WALK:
            _neurons(
                row, number, factor, seed, tile, WALK, NEURONS_OF[WALK], BLOCK_OF[WALK],
                DTYPE, STOCHASTIC, AVERAGE, PHASE,
            )  # fmt: skip


@triton.jit
def _neurons(
    row, number, factor, seed, tile,
    WALK: tl.constexpr, NEURONS: tl.constexpr, BLOCK: tl.constexpr,
    DTYPE: tl.constexpr, STOCHASTIC: tl.constexpr, AVERAGE: tl.constexpr,
    PHASE: tl.constexpr = WHOLE, EXACT: tl.constexpr = True,
):  # fmt: skip
    # Without EXACT, sums are never recomputed, even if inaccurate; nearly all neurons take this path.
    WORK: tl.constexpr = tl.float64 if DTYPE == tl.float64 else tl.float32
    SUM: tl.constexpr = tl.float64 if PHASE == SUMS else WORK
    PIECE: tl.constexpr = EXACT_BLOCK // NEURONS if EXACT_BLOCK // NEURONS < BLOCK else BLOCK
    IS_ROWS: tl.constexpr = WALK <= LONG
    LOOPS: tl.constexpr = WALK >= LONG  # for other kinds, a neuron fits into a block
    ALIGNED: tl.constexpr = FIRST_ALIGNED <= WALK and WALK <= LONG
    SPREAD: tl.constexpr = IS_ROWS and NEURONS > 1 and PHASE == WHOLE
    weights, grads = _address(row, WEIGHT, DTYPE), _address(row, GRAD, DTYPE)
    averages, mu = _averages(row, WORK, AVERAGE), tl.load(number + MOMENTUM)
    fan_in, stride = tl.load(row + FAN_IN).to(tl.int32), tl.load(row + INNER_STRIDE)
    if ALIGNED:  # enables 128-bit loads
        UNIT: tl.constexpr = 16 * 8 // DTYPE.primitive_bitwidth
        weights, grads = tl.multiple_of(weights, 16), tl.multiple_of(grads, 16)
        averages = tl.multiple_of(averages, 16)
        fan_in, stride = tl.multiple_of(fan_in, UNIT), tl.multiple_of(stride, UNIT)
    if WALK == COLUMNS:
        stride = 1
    fan_inner, fan_stride = tl.load(row + FAN_INNER).to(tl.int32), tl.load(row + FAN_OUTER_STRIDE)

    inner = tl.load(row + INNER)
    b = tile * NEURONS + tl.arange(0, NEURONS)
    neuron, start = b, b * stride
    if not IS_ROWS:  # neurons (a, b), all with the same a
        num_tiles = tl.cdiv(inner, NEURONS)
        a = tile // num_tiles
        b -= a * num_tiles * NEURONS
        neuron, start = a * inner + b, a * tl.load(row + OUTER_STRIDE) + b * stride
    is_neuron = b < inner

    sign, penalty = _sign(row, WORK), tl.load(number + GAIN_PENALTY).to(WORK)
    offset, mask = _block(0, start, is_neuron, fan_in, fan_inner, fan_stride, WALK, BLOCK)
    w, g = _read(weights + offset, grads + offset, mask, sign, penalty, WORK)
    d, m = _direction(averages + offset, g, mask, mu, AVERAGE)
    if PHASE == ROWS:
        p, q, r, moves, written = _given_turn(row, neuron, is_neuron, WORK)
    else:
        gg, wg, sg, sw, ww = _sums(w.to(SUM), d.to(SUM))
        size = tl.sum(tl.abs(d), 1)  # zero only if the whole row is
        if LOOPS:
            for i in range(BLOCK, fan_in, BLOCK):
                more, exists = _block(
                    i, start, is_neuron, fan_in, fan_inner, fan_stride, WALK, BLOCK
                )
                w_more, g_more = _read(weights + more, grads + more, exists, sign, penalty, WORK)
                d_more, _ = _direction(averages + more, g_more, exists, mu, AVERAGE)
                gg_more, wg_more, sg_more, sw_more, ww_more = _sums(w_more.to(SUM), d_more.to(SUM))
                gg, wg, sg = gg + gg_more, wg + wg_more, sg + sg_more
                sw, ww, size = sw + sw_more, ww + ww_more, size + tl.sum(tl.abs(d_more), 1)
        if SPREAD:
            gg, wg, sg = _spread(gg), _spread(wg), _spread(sg)
            sw, ww, size = _spread(sw), _spread(ww), _spread(size)
        if EXACT and SUM != tl.float64:
            is_rough = _is_rough(row, number, factor, neuron, is_neuron, gg, wg, sg, sw, ww)
            is_rough = is_rough & (size != 0)
            if tl.max(is_rough.to(tl.int32), 0) != 0:
                # Keep the sums of the others, since a neuron's result must not depend on its neighbours.
                gg, wg = tl.where(is_rough, 0.0, gg), tl.where(is_rough, 0.0, wg)
                sg, sw = tl.where(is_rough, 0.0, sg), tl.where(is_rough, 0.0, sw)
                ww = tl.where(is_rough, 0.0, ww)
                for i in range(0, fan_in, PIECE):
                    more, exists = _block(
                        i, start, is_rough, fan_in, fan_inner, fan_stride, WALK, PIECE
                    )
                    w_more, g_more = _read(
                        weights + more, grads + more, exists, sign, penalty, WORK
                    )
                    d_more, _ = _direction(averages + more, g_more, exists, mu, AVERAGE)
                    gg_more, wg_more, sg_more, sw_more, ww_more = _sums(
                        w_more.to(tl.float64), d_more.to(tl.float64)
                    )
                    gg, wg, sg = gg + gg_more, wg + wg_more, sg + sg_more
                    sw, ww = sw + sw_more, ww + ww_more
        if PHASE == SUMS:
            _store_sums(row, neuron, is_neuron, gg, wg, sg, sw, ww)
        else:
            p, q, r, moves, written = _turn(
                row, number, factor, neuron, is_neuron, gg, wg, sg, sw, ww, WORK
            )
            if SPREAD:
                p, q, r = _spread(p), _spread(q), _spread(r)
                moves = _spread(moves.to(tl.int32)) != 0
                written = _spread(written.to(tl.int32)) != 0

    if PHASE != SUMS:
        if AVERAGE is not None:
            # Computed again, since it would use registers until here. A volatile load hides from the
            # compiler that the result is the same.
            mu = tl.load(number + MOMENTUM, volatile=True)
            d = _mixed(g, m, mu)
        p, q, r = p[:, None], q[:, None], r[:, None]
        moves, written = moves[:, None], written[:, None]
        _write(weights, w, d, p, q, r, offset, mask & moves, seed, DTYPE, STOCHASTIC)
        _write_average(averages, g, m, offset, mask & written, mu, seed, AVERAGE)
        if LOOPS:
            for i in range(BLOCK, fan_in, BLOCK):
                more, exists = _block(
                    i, start, is_neuron, fan_in, fan_inner, fan_stride, WALK, BLOCK
                )
                w_more, g_more = _read(weights + more, grads + more, exists, sign, penalty, WORK)
                d_more, m_more = _direction(averages + more, g_more, exists, mu, AVERAGE)
                _write(
                    weights, w_more, d_more, p, q, r, more, exists & moves, seed, DTYPE, STOCHASTIC
                )
                _write_average(averages, g_more, m_more, more, exists & written, mu, seed, AVERAGE)


@triton.jit
def _block(
    i, start, is_neuron, fan_in, fan_inner, fan_stride, WALK: tl.constexpr, BLOCK: tl.constexpr
):
    # Offsets of fan-in i, i + 1, ... of every neuron, and which of them exist.
    fan = i + tl.arange(0, BLOCK)
    offset = fan
    if WALK == COLUMNS:
        offset = fan * fan_stride
    elif WALK == STRIDED:
        offset = (fan // fan_inner) * fan_stride + fan % fan_inner
    return start[:, None] + offset[None, :], is_neuron[:, None] & (fan < fan_in)[None, :]


@triton.jit
def _read(weights, grads, mask, sign, penalty, WORK: tl.constexpr):
    w = tl.load(weights, mask, 0.0).to(WORK)
    g = tl.load(grads, mask, 0.0).to(WORK) * sign
    # the gradient of (penalty / 2) * (gain - 1)^2        (section 5.6)
    if penalty != 0:
        g = tl.where(mask, g + penalty * (w - 1), 0.0)
    return w, g


@triton.jit
def _direction(averages, g, mask, mu, AVERAGE: tl.constexpr):
    # The direction of the step, and the momentum buffer before it, if there is one.
    d, m = g, g
    if AVERAGE is not None:
        m = tl.load(averages, mask, 0.0).to(g.dtype)
        d = _mixed(g, m, mu)
    return d, m


@triton.jit
def _mixed(g, m, mu):
    return (1 - mu * mu).to(g.dtype) * g + (mu * mu).to(g.dtype) * m


@triton.jit
def _write_average(averages, g, m, offset, mask, mu, seed, AVERAGE: tl.constexpr):
    if AVERAGE is not None:
        new = (1 - mu).to(g.dtype) * g + mu.to(g.dtype) * m
        smallest = SMALLEST_64 if g.dtype == tl.float64 else SMALLEST_32
        new = tl.where(tl.abs(new) < smallest, 0.0, new)
        if AVERAGE == tl.bfloat16:
            new = _round_stochastic(new.to(tl.float32), _noise(seed, offset, 1), AVERAGE)
        tl.store(averages + offset, new.to(AVERAGE), mask=mask)


@triton.jit
def _sums(w, g):
    # Computed in the precision of the rows; only the result of a block is float64.
    gg, wg, ww = tl.sum(g * g, 1), tl.sum(w * g, 1), tl.sum(w * w, 1)
    sg, sw = tl.sum(g, 1), tl.sum(w, 1)
    return (
        gg.to(tl.float64), wg.to(tl.float64), sg.to(tl.float64), sw.to(tl.float64), ww.to(tl.float64)
    )  # fmt: skip


@triton.jit
def _spread(x):
    # One entry per thread: as a sum leaves them, all threads that hold a part of a row have its entry,
    # and repeat what is computed from it. The compiler doesn't undo a gather.
    return tl.gather(x, tl.arange(0, x.shape[0]), 0)


@triton.jit
def _is_rough(row, number, factor, neuron, is_neuron, gg, wg, sg, sw, ww):
    # Whether float32 was too rough for the sums, from the first part of turn_neurons, in float32.
    gg, wg, sg, sw, ww = (
        gg.to(tl.float32), wg.to(tl.float32), sg.to(tl.float32), sw.to(tl.float32), ww.to(tl.float32)
    )  # fmt: skip
    beta, fan_in = tl.load(number + BETA).to(tl.float32), tl.load(row + FAN_IN).to(tl.float32)
    average = tl.load(_address(row, EXP_AVG_NORM, tl.float32) + neuron, is_neuron, 0.0)
    k = tl.load(factor + 1).to(tl.float32) * tl.sqrt(ww)
    k = k / tl.sqrt(_average_sq(row, average, gg, beta))
    shift = tl.where(tl.load(row + CENTRE) != 0, sw - k * sg, 0.0)
    kwg, kkgg = k * wg, k * k * gg
    norm_sq = ww - 2 * kwg + kkgg - shift * (shift / fan_in)
    in_range = (gg > SMALLEST_SUM) & (gg < LARGEST_SUM) & (ww < LARGEST_SUM)
    return (in_range & (norm_sq > 0.5 * (ww + kkgg + 2 * tl.abs(kwg)))) == 0


@triton.jit
def _turn(row, number, factor, neuron, is_neuron, gg, wg, sg, sw, ww, WORK: tl.constexpr):
    # turn_neurons: sums to coefficients, one entry per neuron, with as few roots as possible.
    fan_in, inverse_fan_in = tl.load(row + FAN_IN).to(tl.float64), tl.load(number + INVERSE_FAN_IN)
    centre, target = tl.load(row + CENTRE) != 0, tl.load(number + TARGET)
    has_target = target == target  # NaN if the norm is free
    target = tl.zeros_like(gg) + target
    if tl.load(row + RADIUS) != 0:
        target = tl.load(_address(row, RADIUS, WORK) + neuron, is_neuron, 1.0).to(tl.float64)
    old = tl.load(_address(row, EXP_AVG_NORM, WORK) + neuron, is_neuron, 0.0)
    average_sq = _average_sq(row, old.to(tl.float64), gg, tl.load(number + BETA))
    # A neuron that has missed steps turns by at most eta; see nero.core.average.
    least = tl.load(factor + 2) * gg
    is_short = _has_sign(old) & (average_sq < least)
    is_behind = is_short | (_has_sign(old) & (gg == 0))
    average_sq = tl.where(is_short, least, average_sq)
    inverse = _inverse_root(tl.where(average_sq != 0, average_sq, 1.0), WORK)
    average = tl.where(_is_finite(average_sq), average_sq * inverse, average_sq)
    inverse = tl.where(average_sq == float("inf"), 0.0, inverse)

    # k = eta * ||w|| / sqrt(v / (1 - beta^t))
    norm = ww * _inverse_root(tl.where(ww != 0, ww, 1.0), WORK)
    k = tl.load(factor + 1) * norm * inverse
    mean = tl.where(centre, (sw - k * sg) * inverse_fan_in, 0.0)
    kwg, kkgg = k * wg, k * k * gg
    norm_sq = ww - 2 * kwg + kkgg - fan_in * mean * mean
    threshold = tl.where(has_target, THRESHOLD, FREE_THRESHOLD)
    has_direction = (ww > 0) & (norm_sq > threshold * (ww + kkgg + 2 * tl.abs(kwg)))
    grad_mean = tl.where(centre, sg * inverse_fan_in, 0.0)
    grad_norm_sq = gg - fan_in * grad_mean * grad_mean
    grad_has_direction = grad_norm_sq > threshold * gg

    # NaN and inf take the usual path, where they reach the coefficients and are detected.
    usual = has_direction | (_is_finite(norm_sq) == 0)
    # Without direction: w' = -|target| * (g - mean(g)) / ||g - mean(g)||
    length = tl.where(has_target, target, tl.where(usual, 1.0, tl.load(number + BIAS_SCALE)))
    usual_sq = tl.where(has_target, tl.where(has_direction, norm_sq, 1.0), 1.0)
    size_sq = tl.where(usual, usual_sq, grad_norm_sq)
    size_sq = tl.where(usual | grad_has_direction, size_sq, 1.0)
    scale = length * _inverse_root(size_sq, WORK)
    p = tl.where(usual, scale, 0.0).to(WORK)
    q = tl.where(usual, -k * scale, -scale).to(WORK)
    r = tl.where(usual, -mean * scale, scale * grad_mean).to(WORK)
    is_finite = _is_finite(p) & _is_finite(q) & _is_finite(r)
    written = _finish(row, factor, neuron, is_neuron, is_finite, average, is_behind, old, WORK)
    # `!= 0` holds for NaN, which must count as a gradient.
    moves = (gg != 0) & (usual | grad_has_direction) & written
    return p, q, r, moves, written


@triton.jit
def _average_sq(row, old, gg, beta):
    # v <- beta * v + (1 - beta) * ||g||^2        (Algorithm 1), from the old root; or the squared peak
    faded = beta * beta * (old * old)
    peak = tl.where((faded > gg) | (faded != faded), faded, gg)
    return tl.where(tl.load(row + NORM) == PEAK, peak, beta * old * old + (1 - beta) * gg)


@triton.jit
def _store_sums(row, neuron, mask, gg, wg, sg, sw, ww):
    # In the order of nero.core.gram.
    sums, total = _address(row, GRAM, tl.float64) + neuron, tl.load(row + NUM_NEURONS)
    tl.store(sums, ww, mask=mask)
    tl.store(sums + total, sw, mask=mask)
    tl.store(sums + 2 * total, wg, mask=mask)
    tl.store(sums + 3 * total, gg, mask=mask)
    tl.store(sums + 4 * total, sg, mask=mask)


@triton.jit
def _given_turn(row, neuron, mask, WORK: tl.constexpr):
    # The result of `_turn`, computed from the sums of all ranks.
    turns, total = _address(row, TURNS, WORK) + neuron, tl.load(row + NUM_NEURONS)
    p, q = tl.load(turns, mask, 0.0), tl.load(turns + total, mask, 0.0)
    r = tl.load(turns + 2 * total, mask, 0.0)
    moves = tl.load(_address(row, MOVES, tl.int8) + neuron, mask, 0) != 0
    written = tl.load(_address(row, WRITTEN, tl.int8) + neuron, mask, 0) != 0
    return p, q, r, moves, written


@triton.jit
def _elements(
    row, number, factor, seed, tile,
    DTYPE: tl.constexpr, STOCHASTIC: tl.constexpr, AVERAGE: tl.constexpr,
):  # fmt: skip
    # turn_elements and apply_turn
    WORK: tl.constexpr = tl.float64 if DTYPE == tl.float64 else tl.float32
    i = tile * NUM_ELEMENTS + tl.arange(0, NUM_ELEMENTS)
    mask = i < tl.load(row + INNER)
    weights, grads = _address(row, WEIGHT, DTYPE), _address(row, GRAD, DTYPE)
    sign, penalty = _sign(row, WORK), tl.load(number + GAIN_PENALTY).to(WORK)
    w, g = _read(weights + i, grads + i, mask, sign, penalty, WORK)
    averages, mu = _averages(row, WORK, AVERAGE), tl.load(number + MOMENTUM)
    d, m = _direction(averages + i, g, mask, mu, AVERAGE)
    # v <- beta * v + (1 - beta) * g^2        (Algorithm 1), as its root, without squares out of range
    beta = tl.load(number + BETA)
    old = tl.load(_address(row, EXP_AVG_NORM, WORK) + i, mask, 0.0)
    size, length = tl.abs(old), tl.abs(d)
    largest = tl.where(size > length, size, length)
    unit = tl.where((largest > 0) & _is_finite(largest), largest, 1.0)
    before, new = size / unit, length / unit
    root = tl.sqrt(beta.to(WORK) * before * before + (1 - beta).to(WORK) * new * new)
    # The sum is NaN if either is, and otherwise inf.
    average = tl.where(_is_finite(largest), unit * root, size + length)
    faded = beta.to(WORK) * size
    peak = tl.where((faded > length) | (faded != faded), faded, length)
    average = tl.where(tl.load(row + NORM) == PEAK, peak, average)
    # An element that has missed steps moves by at most eta; see nero.core.average.
    least = tl.sqrt(tl.load(factor + 2)).to(WORK) * length
    is_short = _has_sign(old) & (average < least)
    is_behind = is_short | (_has_sign(old) & (d == 0))
    average = tl.where(is_short, least, average)
    rate = (tl.load(factor + 1) * tl.load(_address(row, SCALE, WORK)).to(tl.float64)).to(WORK)
    q = -rate / tl.where(average != 0, average, 1.0)
    written = _finish(row, factor, i, mask, _is_finite(q), average, is_behind, old, WORK)
    _write(weights, w, d, 1.0, q, 0.0, i, mask & (d != 0) & written, seed, DTYPE, STOCHASTIC)
    _write_average(averages, g, m, i, mask & written, mu, seed, AVERAGE)


@triton.jit
def _sign(row, WORK: tl.constexpr):
    return (1 - 2 * tl.load(row + MAXIMIZE)).to(WORK)


@triton.jit
def _inverse_root(x, WORK: tl.constexpr):
    # 1/sqrt(x) in float64, for x > 0; with an error of 2^-43 if the result is for float32.
    if WORK == tl.float64:
        return 1.0 / tl.sqrt(x)
    # x = y * 4^half with y in [1, 4): take the root in float32, then one step of Newton's method
    half = ((x.to(tl.int64, bitcast=True) >> 52) - 1023) >> 1
    unit = ((1023 - half) << 52).to(tl.float64, bitcast=True)
    y = x * unit * unit
    root = tl.rsqrt(y.to(tl.float32)).to(tl.float64)
    return root * (1.5 - 0.5 * y * root * root) * unit


@triton.jit
def _finish(row, factor, neuron, mask, is_finite, average, is_behind, old, WORK: tl.constexpr):
    # Store averages, count skipped neurons, and return which neurons may be written.
    average = tl.where(is_behind, -average, average).to(WORK)
    is_finite = is_finite & _is_finite(average)
    written = tl.where(tl.load(row + NONFINITE) == PROPAGATE, mask, is_finite)
    grown = tl.abs(old).to(tl.float64) * tl.load(factor + 3)
    largest = LARGEST_64 if WORK == tl.float64 else LARGEST_32
    kept = -tl.where(grown > largest, largest, grown).to(WORK)
    tl.store(
        _address(row, EXP_AVG_NORM, WORK) + neuron, tl.where(written, average, kept), mask=mask
    )
    num_skipped = tl.sum((mask & (written == 0)).to(tl.int32), 0).to(tl.int64)
    tl.atomic_add(_address(row, NUM_SKIPPED, tl.int64), num_skipped, mask=num_skipped > 0)
    return written


@triton.jit
def _write(
    weights, w, g, p, q, r, offset, mask, seed, DTYPE: tl.constexpr, STOCHASTIC: tl.constexpr
):
    new = (r + p * w) + q * g
    if STOCHASTIC:
        new = _round_stochastic(new, _noise(seed, offset, 0), DTYPE)
    tl.store(weights + offset, new.to(DTYPE), mask=mask)


@triton.jit
def _noise(seed, offset, LANE: tl.constexpr):
    bits = _logical_shift(_mix(seed + offset), 64 - NOISE_BITS * (LANE + 1)) & NOISE_MASK
    return bits.to(tl.int32).to(tl.float32) * NOISE_UNIT


@triton.jit
def _round_stochastic(x, noise, DTYPE: tl.constexpr):
    # round_stochastic from float32; the power of two as two factors, since it may be out of range.
    DIGITS: tl.constexpr = 7 if DTYPE == tl.bfloat16 else 10
    SMALLEST: tl.constexpr = -126 if DTYPE == tl.bfloat16 else -14
    exponent = ((x.to(tl.int32, bitcast=True) >> 23) & 255) - 127
    exponent = tl.maximum(exponent, SMALLEST) - DIGITS
    half = exponent >> 1
    rest = exponent - half
    scaled = x * _power_of_two(-half) * _power_of_two(-rest)
    below = tl.floor(scaled)
    rounded = tl.where(noise < scaled - below, below + 1, below)
    return tl.where(_is_finite(x), rounded * _power_of_two(half) * _power_of_two(rest), x)


@triton.jit
def _power_of_two(exponent):
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _mix(x):
    # The finalizer of splitmix64, as in nero.core.rounding; int64 wraps around.
    x = x + INCREMENT
    x = (x ^ _logical_shift(x, 30)) * FIRST_MULTIPLIER
    x = (x ^ _logical_shift(x, 27)) * SECOND_MULTIPLIER
    return x ^ _logical_shift(x, 31)


@triton.jit
def _logical_shift(x, BITS: tl.constexpr):
    return (x.to(tl.uint64, bitcast=True) >> BITS).to(tl.int64, bitcast=True)


@triton.jit
def _address(row, COLUMN: tl.constexpr, TYPE: tl.constexpr):
    return tl.load(row + COLUMN).to(tl.pointer_type(TYPE))


@triton.jit
def _averages(row, WORK: tl.constexpr, AVERAGE: tl.constexpr):
    TYPE: tl.constexpr = WORK if AVERAGE is None else AVERAGE
    return _address(row, EXP_AVG, TYPE)


@triton.jit
def _is_finite(x):
    return tl.abs(x) < float("inf")


@triton.jit
def _has_sign(x):
    # Also true for -0.0.
    BITS: tl.constexpr = tl.int64 if x.dtype == tl.float64 else tl.int32
    return x.to(BITS, bitcast=True) < 0
