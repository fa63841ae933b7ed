r"""Nero's update (Algorithm 1) and the projection of one array, in JAX.

Which neurons move or are skipped, and what replaces a lost direction, is decided as in `nero.core.rule`.
The arithmetic differs. The torch code reads a row once, accumulates five sums in float64 and derives the
new row from them. JAX has no float64 unless ``jax_enable_x64`` is set, and in float32 those sums would
cancel. So the new row is computed first, then normalized:

    length = eta * ||w|| * ||g||/g_bar
    turned = (w - mean(w)) - length * (g - mean(g))/||g||
    new    = radius * turned/||turned||

Values are divided by the neuron's largest entry before they are squared, so gradients of 1e-30 or 1e+30
cause no problem. Every reduction runs over the fan-in only, so nothing communicates as long as each device
holds whole neurons.
"""

import math
from typing import Any, TypeAlias

import jax.numpy as jnp
from jax import Array

from nero.core.neurons import Neurons
from nero.core.spec import Hyper
from nero.core.sphere import Sphere

State: TypeAlias = dict[str, Array]
"""One parameter's state, with the same keys as in torch."""

Dims: TypeAlias = tuple[int, ...]


def working_dtype(weight: Array) -> Any:
    """Return the dtype of a parameter's state: float32, or float64 for float64 weights."""
    return jnp.promote_types(weight.dtype, jnp.float32)


def is_off(value: Any) -> bool:
    """Whether an option is the constant zero, rather than an array, which may be traced or change."""
    return not isinstance(value, Array) and value == 0


def initial_state(weight: Array, neurons: Neurons, hyper: Hyper) -> State:
    """Make a parameter's initial state.

    ``num_skipped`` has one count per neuron, not one per parameter, since summing them would communicate.
    """
    dtype, row = working_dtype(weight), view(weight, neurons)
    # Computed from the weights, so that outside jit it has the same sharding.
    per_neuron = jnp.max(jnp.abs(row), neurons.fan_in_dims, keepdims=True, initial=0)
    state = {
        "exp_avg_norm": jnp.zeros_like(per_neuron, dtype),
        "num_skipped": jnp.zeros_like(per_neuron, jnp.int32),
    }
    if neurons.is_elementwise:
        # sigma_b: mean |b| over finite entries, or bias_scale if the parameter starts at zero
        total, count = jnp.sum(jnp.abs(_finite(_wide(weight)))), jnp.sum(jnp.isfinite(weight))
        scale = total / jnp.maximum(count, 1)
        state["scale"] = jnp.where(scale > 0, scale, hyper.bias_scale).astype(dtype)
    if hyper.constraint.radius == "initial":
        radius = _norm(_finite(_wide(row)), neurons.fan_in_dims)
        state["radius"] = jnp.where(radius > 0, radius, hyper.bias_scale).astype(dtype)
    if not is_off(hyper.momentum):
        state["exp_avg"] = jnp.zeros_like(weight, dtype)
    return state


def nero_update(
    weight: Array,
    grad: Array,
    state: State,
    *,
    neurons: Neurons,
    step: Array,
    lr: Any,
    hyper: Hyper,
) -> tuple[Array, State]:
    """Update a parameter once: return its new value and state.

    Args:
        weight: the parameter.
        grad: its gradient.
        state: from `initial_state` or the last update.
        neurons: the parameter's neurons.
        step: number of this update, counted from one.
        lr: the angle to turn; at exactly zero nothing changes.
        hyper: the options that apply to these neurons.

    Note:
        A neuron whose gradient is zero does not move, and its average decays. One without direction (zero,
        constant, or cancelled by the step) takes that of ``-g``; if ``g`` has none either, it does not
        move. One whose gradient is not finite is skipped; see `nero.core.average`.

    Example:
        >>> import jax.numpy as jnp
        >>> from nero.jax.rule import initial_state, nero_update
        >>> from nero.layout import neurons
        >>> columns, w = neurons(1).at((2, 1)), jnp.array([[0.6], [-0.8]])
        >>> hyper = Hyper().for_neurons(columns)
        >>> new, state = nero_update(w, jnp.ones((2, 1)), initial_state(w, columns, hyper),
        ...                          neurons=columns, step=jnp.array(1), lr=0.01, hyper=hyper)
        >>> round(float(jnp.linalg.norm(new)), 6)
        1.0
    """
    dtype, dims = working_dtype(weight), neurons.fan_in_dims
    grad = _effective_grad(weight, grad, hyper)
    along = _direction(grad, state.get("exp_avg"), hyper.momentum)
    w, g = _wide(view(weight, neurons)), _wide(view(along, neurons))
    old = {key: _wide(value) for key, value in state.items() if key in ("exp_avg_norm", "radius")}
    lr = jnp.asarray(lr, w.dtype)

    grad_norm, average = _norm(g, dims), old["exp_avg_norm"]
    if hyper.norm == "peak":
        # u <- max(beta * u, ||g||)
        average = jnp.maximum(hyper.beta * jnp.abs(average), grad_norm)
        correction = before = jnp.ones((), w.dtype)
    else:
        # g_bar^2 <- beta * g_bar^2 + (1 - beta) * ||g||^2, as roots        (Algorithm 1)
        average = jnp.hypot(_sqrt(hyper.beta) * average, _sqrt(1 - hyper.beta) * grad_norm)
        correction = jnp.sqrt(_bias_correction(hyper.beta, step, w.dtype))
        before = jnp.sqrt(_bias_correction(hyper.beta, jnp.maximum(step - 1, 1), w.dtype))
    # A neuron that has missed steps turns by at most eta until a gradient is no longer than the average.
    is_behind = jnp.signbit(state["exp_avg_norm"])
    is_short = is_behind & (average < correction * grad_norm)
    average = jnp.where(is_short, correction * grad_norm, average)
    is_behind = is_short | (is_behind & (grad_norm == 0))
    corrected = average / correction
    # w <- w - eta * ||w|| / g_bar * g, with the parameter's scale as the norm of elements
    size = _wide(state["scale"]) if neurons.is_elementwise else _norm(w, dims)
    length = lr * size * (grad_norm / _or_one(corrected))
    unit = g / _or_one(grad_norm)
    if hyper.constraint.centre:
        w, unit = _centre(w, neurons), _centre(unit, neurons)
    new, has_direction = w - length * unit, True
    if not neurons.is_elementwise:
        target: Any = old.get("radius", hyper.constraint.radius)
        start = hyper.bias_scale if target is None else target
        norm, unit_norm = _norm(new, dims), _norm(unit, dims)
        is_lost = (norm <= _lost(target, w.dtype) * (size + length)) | (size == 0)
        has_direction = ~is_lost | (unit_norm > _lost(target, w.dtype))
        # Without direction: w' = -radius * (g - mean(g)) / ||g - mean(g)||
        usual = new if target is None else new * (target / _or_one(norm))
        new = jnp.where(is_lost, unit * (-start / _or_one(unit_norm)), usual)
        length = length + norm  # so that NaN and inf in the weights are detected below
    is_finite = jnp.isfinite(average) & jnp.isfinite(length)
    is_written = is_finite & (lr != 0)
    # `!= 0` holds for NaN, which must count as a gradient.
    moves = is_written & (grad_norm != 0) & has_direction

    skipped = (~is_finite & (lr != 0)).astype(jnp.int32)
    new_state = {**state, "num_skipped": state["num_skipped"] + skipped}
    grown = jnp.abs(old["exp_avg_norm"]) * (correction / before)
    grown = jnp.minimum(grown, jnp.finfo(dtype).max)
    average = jnp.where(is_finite, jnp.where(is_behind, -average, average), -grown).astype(dtype)
    new_state["exp_avg_norm"] = jnp.where(lr != 0, average, state["exp_avg_norm"])
    if "exp_avg" in state:
        # m <- mu * m + (1 - mu) * g
        m = hyper.momentum * state["exp_avg"] + (1 - hyper.momentum) * grad.astype(dtype)
        m = jnp.where(
            jnp.abs(m) < jnp.finfo(dtype).tiny, 0.0, m
        )  # a subnormal would never decay to 0
        kept = jnp.where(is_written, view(m, neurons), view(state["exp_avg"], neurons))
        new_state["exp_avg"] = kept.reshape(weight.shape).astype(dtype)
    new = jnp.where(moves, new.astype(weight.dtype), view(weight, neurons))
    return new.reshape(weight.shape), new_state


def project_array(weight: Array, *, neurons: Neurons, constraint: Sphere) -> Array:
    """Project every neuron onto ``constraint``; those that obey it, or have no direction, do not change.

    Example:
        >>> import jax.numpy as jnp
        >>> from nero.jax.rule import project_array
        >>> from nero.layout import neurons
        >>> w = jnp.array([[1.0], [2.0], [3.0]])
        >>> project_array(w, neurons=neurons(1).at(w.shape), constraint=Sphere()).ravel()
        Array([-0.70710677,  0.        ,  0.70710677], dtype=float32)
    """
    if neurons.is_elementwise or constraint.is_free:
        return weight
    w, dims = _wide(view(weight, neurons)), neurons.fan_in_dims
    norm = _norm(w, dims)
    target: Any = norm if constraint.radius == "initial" else constraint.radius
    centred = w
    if constraint.centre:  # the second pass removes the rounding error of a large mean
        centred = _centre(_centre(w, neurons), neurons)
    centred_norm = _norm(centred, dims)
    new = centred if target is None else centred * (target / _or_one(centred_norm))
    has_direction = centred_norm > 8 * jnp.finfo(working_dtype(weight)).eps * norm
    done = is_balanced(weight, neurons=neurons, constraint=constraint, radius=target)
    keeps = done | ~has_direction | ~jnp.isfinite(norm)
    new = jnp.where(keeps, view(weight, neurons), new.astype(weight.dtype))
    return new.reshape(weight.shape)


def is_balanced(weight: Array, *, neurons: Neurons, constraint: Sphere, radius: Any) -> Array:
    """Check for every neuron whether it obeys ``constraint`` up to the rounding of its dtype.

    Example:
        >>> import jax.numpy as jnp
        >>> from nero.jax.rule import is_balanced
        >>> from nero.layout import neurons
        >>> w = jnp.array([[0.6, 3.0], [-0.8, 4.0]])
        >>> is_balanced(w, neurons=neurons(1).at((2, 2)), constraint=Sphere(centre=False), radius=1.0)
        Array([[ True, False]], dtype=bool)
    """
    w, dims = _wide(view(weight, neurons)), neurons.fan_in_dims
    tolerance = jnp.finfo(weight.dtype).eps + 3 * jnp.finfo(working_dtype(weight)).eps
    norm = _norm(w, dims)
    balanced = jnp.isfinite(norm)
    if constraint.centre:
        drift = jnp.abs(jnp.sum(w, dims, keepdims=True)) / math.sqrt(neurons.fan_in)
        balanced = balanced & (drift <= tolerance * norm)
    if radius is not None:
        balanced = balanced & (jnp.abs(norm - radius) <= tolerance * radius)
    return balanced


def view(array: Array, neurons: Neurons) -> Array:
    """Split dim 0 into groups if the layout has any, so that ``neurons.fan_in_dims`` applies."""
    groups = neurons.num_groups
    return array if groups == 1 else array.reshape(groups, -1, *array.shape[1:])


def _centre(x: Array, neurons: Neurons) -> Array:
    return x - jnp.sum(x, neurons.fan_in_dims, keepdims=True) / neurons.fan_in


def _lost(target: Any, dtype: Any) -> float:
    # A row counts as lost if cancellation leaves at most this fraction of its terms. A fixed norm needs
    # half the digits to be correct; a free norm needs only a few. Torch's thresholds, or float32's.
    return max(2.0**-23, 8 * float(jnp.finfo(dtype).eps)) if target is None else 2.0**-13


def _effective_grad(weight: Array, grad: Array, hyper: Hyper) -> Array:
    grad = -grad if hyper.maximize else grad
    if is_off(hyper.gain_penalty):
        return grad
    # the gradient of (penalty / 2) * (gain - 1)^2        (section 5.6)
    gain = weight.astype(working_dtype(weight))
    return jnp.add(grad, hyper.gain_penalty * (gain - 1))


def _direction(grad: Array, exp_avg: Array | None, momentum: Any) -> Array:
    # mu*m + (1-mu)*g in terms of the new m, which is mu^2*m + (1-mu^2)*g in terms of the old one
    if exp_avg is None:
        return grad
    return jnp.add(momentum**2 * exp_avg, (1 - momentum**2) * grad.astype(exp_avg.dtype))


def _bias_correction(beta: Any, step: Array, dtype: Any) -> Array:
    # 1 - beta^t without cancellation; the logarithm of a Python number is in double precision
    if isinstance(beta, Array):
        return -jnp.expm1(step * jnp.log(beta.astype(dtype)))
    return -jnp.expm1(step.astype(dtype) * (math.log(beta) if beta > 0 else -math.inf))


def _norm(x: Array, dims: Dims) -> Array:
    if not dims:
        return jnp.abs(x)
    largest = jnp.max(jnp.abs(x), dims, keepdims=True, initial=0)
    # The norm of a neuron that is not finite is NaN.
    return largest * jnp.sqrt(jnp.sum(jnp.square(x / _or_one(largest)), dims, keepdims=True))


def _finite(x: Array) -> Array:
    return jnp.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)


def _wide(x: Array) -> Array:
    return x.astype(float)  # float64 with jax_enable_x64, float32 without


def _sqrt(x: Any) -> Any:
    return jnp.sqrt(x) if isinstance(x, Array) else math.sqrt(x)


def _or_one(x: Array) -> Array:
    # A denominator without zeros; the results are masked elsewhere.
    return jnp.where(x != 0, x, 1.0)
