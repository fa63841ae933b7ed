r"""Nero's update (Algorithm 1), written over the Gram matrix of a neuron's rows.

For a neuron of fan-in n, step size eta and running average ``v``:

    v <- beta*v + (1-beta)*||g||^2
    k  = eta * ||w|| / sqrt(v / (1-beta^t))
    w <- w - k*g ;  w <- w - mean(w) ;  w <- radius * w/||w||

The last line is affine in the row, ``w' = p*w + q*g + r``, and its coefficients follow from inner products:

    m = (Sum w - k*Sum g)/n                                     the mean after the step
    c = Sum w^2 - 2k*Sum w*g + k^2*Sum g^2 - n*m^2              the squared norm after centring
    p = radius/sqrt(c)      q = -k*p      r = -m*p

so the row is read once and written once. `nero.core.average` computes the running average, offers another
norm to divide by, and defines what happens when a neuron is skipped.

With momentum, ``g`` mixes the gradient and the momentum buffer: see `direction`.

Everything here is pure and differentiable. [`nero_update`][nero.functional.nero_update] is the complete
update; backends call its parts, because they process large tensors in blocks or reduce sums over ranks.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from nero.core.arguments import check_alike, check_fan_in_dims
from nero.core.average import Average, average_with, average_without, root_of
from nero.core.directions import layer_direction
from nero.core.gram import Gram, gram
from nero.core.neurons import Neurons
from nero.core.precision import or_one, sum_dtype, working_dtype
from nero.core.rounding import round_stochastic
from nero.core.spec import STATE, Hyper, learning_rate
from nero.core.sphere import target_radius


class Affine(NamedTuple):
    """A new row: the sum of ``coefficients[i]*rows[i]``, plus ``shift``."""

    coefficients: tuple[Tensor, ...]
    """One per row, in the order of the rows; each has one entry per neuron."""
    shift: Tensor


class Turn(NamedTuple):
    """The update of every neuron, before it is applied to the rows."""

    weight: Affine
    """The new weights: ``p*w + q*g + r``."""
    moves: Tensor
    """Which neurons get new weights."""
    state: dict[str, Tensor]
    """The new per-neuron state."""
    is_finite: Tensor
    """Which neurons had a finite update."""
    is_written: Tensor
    """Which neurons are not skipped, including those that do not move."""


class Updated(NamedTuple):
    """New weights and state, and which neurons had a finite update."""

    weight: Tensor
    state: dict[str, Tensor]
    is_finite: Tensor


def nero_update(
    weight: Tensor,
    grad: Tensor,
    state: Mapping[str, Tensor],
    *,
    neurons: Neurons,
    step: int | Tensor,
    lr: float | Tensor = 0.01,
    hyper: Hyper | None = None,
    noise: Tensor | None = None,
    average_noise: Tensor | None = None,
) -> Updated:
    """Update a parameter once: Gram matrix, coefficients, new rows.

    Args:
        weight: weights, viewed so that ``neurons.fan_in_dims`` applies.
        grad: gradient, in the shape of ``weight``.
        state: ``exp_avg_norm``; ``scale`` for elementwise parameters, ``radius`` for
            ``Sphere(radius="initial")``, and ``exp_avg`` for ``momentum``.
        neurons: the parameter's neurons.
        step: number of this update, counted from one.
        lr: the angle to turn.
        hyper: the options.
        noise: as in [`apply_turn`][nero.functional.apply_turn].
        average_noise: the same for ``exp_avg`` in bfloat16.

    Example:
        >>> from nero.layout import neurons
        >>> w = project(torch.randn(4, 10), fan_in_dims=(1,))
        >>> state = {"exp_avg_norm": torch.zeros(4, 1)}
        >>> new = nero_update(w, torch.randn(4, 10), state, neurons=neurons(0).at((4, 10)), step=1)
        >>> torch.allclose(new.weight.norm(dim=1), torch.ones(4))
        True
    """
    hyper = Hyper() if hyper is None else hyper
    optional = {"noise": noise, "average_noise": average_noise}
    noises = {name: tensor for name, tensor in optional.items() if tensor is not None}
    _check_update(weight, grad, state, neurons, hyper, noises)
    learning_rate("lr", lr)
    hyper = hyper.for_neurons(neurons)
    average: dict[str, Tensor] = {}
    if hyper.direction != "gradient":
        gradient = rows_of(weight, grad, state, hyper)["g"]
        along = layer_direction(hyper.direction, gradient, neurons)
        average = average_along(
            *(weight, grad, state, along), neurons=neurons, lr=lr, hyper=hyper, noise=average_noise
        )
        grad, hyper = along.to(weight.dtype), hyper.along_given()
        state = {key: value for key, value in state.items() if key != "exp_avg"}
    rows = rows_of(weight, grad, state, hyper)
    products = None if neurons.is_elementwise else gram(rows, fan_in_dims=neurons.fan_in_dims)
    turn = turn_rows(products, rows, state, neurons=neurons, step=step, lr=lr, hyper=hyper)
    new_state = turn.state | average
    if "exp_avg" in state:
        new_state["exp_avg"] = average_grad(
            *(weight, grad, state["exp_avg"], turn.is_written, hyper), noise=average_noise
        )
    return Updated(apply_turn(rows, turn, noise=noise), new_state, turn.is_finite)


def _check_update(
    weight: Tensor,
    grad: Tensor,
    state: Mapping[str, Tensor],
    neurons: Neurons,
    hyper: Hyper,
    noises: Mapping[str, Tensor],
) -> None:
    check_alike(weight=weight, grad=grad, **noises)
    if not isinstance(neurons, Neurons):
        raise TypeError(f"neurons must be the result of Layout.at, not {neurons!r}")
    if not isinstance(hyper, Hyper):
        raise TypeError(f"hyper must be a Hyper, not {hyper!r}")
    hyper = Hyper.read(hyper._asdict()).for_neurons(neurons)
    if neurons.fan_in_dims:
        check_fan_in_dims(neurons.fan_in_dims, weight.ndim)
    shape = [1 if d in neurons.fan_in_dims else n for d, n in enumerate(weight.shape)]
    if math.prod(shape) != neurons.num_neurons:
        raise ValueError(
            f"neurons must fit weight's shape, {tuple(weight.shape)}, but are {neurons}"
        )
    for key in ("exp_avg_norm", "scale", "radius", "exp_avg"):
        if not STATE[key].exists(neurons, hyper):
            continue
        if not isinstance(state, Mapping) or not isinstance(state.get(key), Tensor):
            raise ValueError(f"state must have {key}, which these neurons and options need")
        if STATE[key].shape == "per neuron" and list(state[key].shape) != shape:
            raise ValueError(
                f"state's {key} must have the shape {tuple(shape)}, not {tuple(state[key].shape)}"
            )
        if STATE[key].shape == "per element":
            check_alike(**{"weight": weight, f"state's {key}": state[key]})


def effective_grad(weight: Tensor, grad: Tensor, hyper: Hyper) -> Tensor:
    """Return the gradient of the objective to minimize, including the penalty.

    Example:
        >>> effective_grad(torch.ones(2), torch.tensor([3.0, -1.0]), Hyper(maximize=True))
        tensor([-3.,  1.])
    """
    grad = -grad if hyper.maximize else grad
    if hyper.gain_penalty:
        # the gradient of (penalty / 2) * (gain - 1)^2        (section 5.6)
        dtype = working_dtype(weight.dtype)
        grad = grad.to(dtype) + hyper.gain_penalty * (weight.to(dtype) - 1)
    return grad


def direction(grad: Tensor, exp_avg: Tensor | None, momentum: float) -> Tensor:
    r"""Return the direction of a step: the gradient, or Nesterov's lookahead with momentum.

    With ``m <- mu*m + (1-mu)*g`` it is ``mu*m + (1-mu)*g`` in terms of the new ``m``, which is
    ``mu^2*m + (1-mu^2)*g`` in terms of the old one. It replaces the gradient in the rest of the update, so
    the running average is that of its norm.

    Args:
        grad: the effective gradient.
        exp_avg: the momentum buffer before this step, if there is momentum.
        momentum: ``mu``.

    Example:
        >>> direction(torch.tensor([1.0]), torch.tensor([2.0]), 0.5)
        tensor([1.2500])
    """
    return grad if exp_avg is None else _mixed(grad, exp_avg, momentum * momentum)


def average_grad(
    weight: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    is_written: Tensor,
    hyper: Hyper,
    *,
    noise: Tensor | None = None,
) -> Tensor:
    """Return the new momentum buffer, ``mu*m + (1-mu)*g``, unchanged for skipped neurons.

    Args:
        weight: weights before this step, used by a gain penalty.
        grad: gradient.
        exp_avg: the buffer before this step.
        is_written: which neurons are not skipped.
        hyper: the options.
        noise: uniform numbers in [0, 1) to round stochastically to the dtype of ``exp_avg``; without them,
            it rounds to nearest.
    """
    new = _mixed(effective_grad(weight, grad, hyper), exp_avg, hyper.momentum)
    # A subnormal number would round to itself at every step, and never decay to zero.
    new = torch.where(new.abs() < torch.finfo(new.dtype).tiny, 0.0, new)
    dtype = exp_avg.dtype
    new = new.to(dtype) if noise is None else round_stochastic(new, dtype, noise)
    return torch.where(is_written, new, exp_avg)


def _mixed(grad: Tensor, exp_avg: Tensor, share: float) -> Tensor:
    """Return ``share*exp_avg + (1-share)*grad`` in working precision."""
    dtype = torch.promote_types(working_dtype(exp_avg.dtype), grad.dtype)
    return torch.add((1 - share) * grad.to(dtype), exp_avg.to(dtype), alpha=share)


def average_along(
    weight: Tensor,
    grad: Tensor,
    state: Mapping[str, Tensor],
    along: Tensor,
    *,
    neurons: Neurons,
    lr: float | Tensor,
    hyper: Hyper,
    noise: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return the new momentum buffer, if there is one, of a layer that follows a direction.

    Args:
        weight: weights before this step.
        grad: gradient.
        state: before this step.
        along: the direction, with NaN for neurons to skip; their buffer stays unchanged.
        neurons: the parameter's neurons.
        lr: the angle to turn; at exactly zero the buffer stays unchanged.
        hyper: the options that apply to these neurons.
        noise: as in `average_grad`.
    """
    if "exp_avg" not in state:
        return {}
    is_finite = torch.isfinite(along).all(dim=neurons.fan_in_dims, keepdim=True)
    is_written = is_finite if hyper.nonfinite != "propagate" else torch.ones_like(is_finite)
    is_written = is_written & (lr != 0)
    average = average_grad(weight, grad, state["exp_avg"], is_written, hyper, noise=noise)
    return {"exp_avg": average}


def rows_of(
    weight: Tensor,
    grad: Tensor,
    state: Mapping[str, Tensor],
    hyper: Hyper,
) -> dict[str, Tensor]:
    """Return a parameter's rows by letter: weights ``w``, and the direction ``g`` of the step."""
    grad = effective_grad(weight, grad, hyper)
    return {"w": weight, "g": direction(grad, state.get("exp_avg"), hyper.momentum)}


def turn_rows(
    products: Gram | None,
    rows: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    *,
    neurons: Neurons,
    step: int | Tensor,
    lr: float | Tensor,
    hyper: Hyper,
) -> Turn:
    """Compute the update of a parameter from its Gram matrix, or from its rows if it has no fan-in.

    Args:
        products: the Gram matrix of the rows; ``None`` for elementwise parameters.
        rows: as `rows_of` returns them; if ``products`` are given, only the weights' dtype matters.
        state: before this step.
        neurons: the parameter's neurons.
        step: number of this update, counted from one.
        lr: the angle to turn.
        hyper: the options that apply to these neurons.

    Example:
        >>> from nero.layout import BIAS
        >>> rows = {"w": torch.ones(2), "g": torch.tensor([3.0, -5.0])}
        >>> state = {"exp_avg_norm": torch.zeros(2), "scale": torch.tensor(1.0)}
        >>> turn = turn_rows(None, rows, state, neurons=BIAS.at((2,)), step=1, lr=0.01, hyper=Hyper())
        >>> apply_turn(rows, turn)
        tensor([0.9900, 1.0100])
    """
    dtype = working_dtype(rows["w"].dtype)
    if products is None:
        return turn_elements(rows["g"], state, step=step, lr=lr, dtype=dtype, hyper=hyper)
    return turn_neurons(
        products, state, fan_in=neurons.fan_in, step=step, lr=lr, dtype=dtype, hyper=hyper
    )


def turn_neurons(
    products: Gram,
    state: Mapping[str, Tensor],
    *,
    fan_in: int | Tensor,
    step: int | Tensor,
    lr: float | Tensor,
    dtype: torch.dtype,
    hyper: Hyper,
) -> Turn:
    """Compute the coefficients of every neuron's new row from inner products.

    Args:
        products: the Gram matrix, over the full fan-in even if it is sharded.
        state: ``exp_avg_norm``, the root of the running average before this step, and ``radius``, the
            norm of each neuron, for ``Sphere(radius="initial")``.
        fan_in: number of weights per neuron; one number, or one per neuron, as for ``step``.
        step: number of this update of the parameter, counted from one.
        lr: the angle to turn, ``eta``; at exactly zero nothing changes, not even the average.
        dtype: working dtype of the weights, for the coefficients.
        hyper: the options. ``bias_scale`` is the norm given to a zero neuron if its norm is free.

    Note:
        - A neuron whose gradient is exactly zero does not move; its average decays.
        - A neuron without direction (zero, constant, or cancelled by the step) takes the direction
          of ``-g``. If the centred gradient has no direction either, the neuron does not move.
        - A neuron whose gradient is not finite is skipped; see `nero.core.average`.

    Example:
        >>> w, g = torch.tensor([[1.0, -1.0, 0.0]]) / 2**0.5, torch.tensor([[0.0, 0.0, 1.0]])
        >>> products = gram({"w": w, "g": g}, fan_in_dims=(1,))
        >>> turn = turn_neurons(products, {"exp_avg_norm": torch.zeros(1, 1)}, fan_in=3, step=1, lr=0.01,
        ...                     dtype=torch.float32, hyper=Hyper())
        >>> round(turn.weight.coefficients[1].item(), 4)
        -0.01
    """
    ww, w1, wg, gg, g1 = (products[key] for key in ("ww", "w1", "wg", "gg", "g1"))
    constraint = hyper.constraint
    target = target_radius(constraint, state.get("radius"))
    average = average_with(state["exp_avg_norm"], gg, beta=hyper.beta, step=step, norm=hyper.norm)

    # k = eta * ||w|| / sqrt(v / (1 - beta^t))
    k = lr * (ww * average.correction / or_one(average.squared)).sqrt()
    mean = (w1 - k * g1) / fan_in if constraint.centre else torch.zeros_like(k)
    kwg, kkgg = k * wg, k * k * gg
    norm_sq = ww - 2 * kwg + kkgg - fan_in * mean * mean
    # If these terms cancel, the row has no direction left. Setting its norm needs half the digits of the
    # sum to be right; a free norm needs a few.
    eps = torch.finfo(norm_sq.dtype).eps
    threshold = 64 * eps if target is None else math.sqrt(eps)
    has_direction = (ww > 0) & (norm_sq > threshold * (ww + kkgg + 2 * kwg.abs()))
    norm = torch.where(has_direction, norm_sq, 1.0).sqrt()
    p = torch.ones_like(k) if target is None else target / norm

    # Without direction: w' = -|target| * (g - mean(g)) / ||g - mean(g)||
    grad_mean = g1 / fan_in if constraint.centre else torch.zeros_like(k)
    grad_norm_sq = gg - fan_in * grad_mean * grad_mean
    grad_has_direction = grad_norm_sq > threshold * gg
    start = hyper.bias_scale if target is None else target
    start = start / torch.where(grad_has_direction, grad_norm_sq, 1.0).sqrt()

    # NaN and inf take the usual path, where they reach the coefficients and are detected.
    usual = has_direction | ~torch.isfinite(norm_sq)
    coefficients = (
        torch.where(usual, p, 0.0).to(dtype),
        torch.where(usual, -k * p, -start).to(dtype),
    )
    shift = torch.where(usual, -mean * p, start * grad_mean).to(dtype)
    # `!= 0` holds for NaN, which must count as a gradient.
    moves = (gg != 0) & (usual | grad_has_direction)
    return _finish(Affine(coefficients, shift), moves, average, state, step, lr, hyper)


def turn_elements(
    grad: Tensor,
    state: Mapping[str, Tensor],
    *,
    step: int | Tensor,
    lr: float | Tensor,
    dtype: torch.dtype,
    hyper: Hyper,
) -> Turn:
    """Compute the update of a parameter without fan-in (Algorithm 1, bias update).

    ``b <- b - eta * sigma / g_bar * g``: each element is a neuron whose norm is replaced by the initial
    scale ``sigma`` of the whole tensor.

    Args:
        grad: gradient.
        state: ``exp_avg_norm``, the root of the running average before this step, in the shape of
            ``grad``, and ``scale``, the initial scale ``sigma``.
        step: number of this update of the parameter, counted from one.
        lr: step size ``eta``; at exactly zero nothing changes, not even the average.
        dtype: working dtype of the weights.
        hyper: the options.

    Example:
        >>> g = torch.tensor([3.0, -5.0])
        >>> state = {"exp_avg_norm": torch.zeros(2), "scale": torch.tensor(1.0)}
        >>> turn = turn_elements(g, state, step=1, lr=0.01, dtype=torch.float32, hyper=Hyper())
        >>> turn.weight.coefficients[1] * g
        tensor([-0.0100,  0.0100])
    """
    g = grad.to(sum_dtype(grad))
    average = average_with(
        *(state["exp_avg_norm"], g * g), beta=hyper.beta, step=step, norm=hyper.norm
    )
    k = lr * state["scale"] * (average.correction / or_one(average.squared)).sqrt()
    coefficients = torch.ones_like(k).to(dtype), (-k).to(dtype)
    affine = Affine(coefficients, torch.zeros_like(k).to(dtype))
    return _finish(affine, g != 0, average, state, step, lr, hyper)


def apply_turn(rows: Mapping[str, Tensor], turn: Turn, *, noise: Tensor | None = None) -> Tensor:
    """Compute new weights in working precision; neurons that do not move stay bit-identical.

    Args:
        rows: the old rows by letter, in the order of the coefficients.
        turn: the update.
        noise: uniform numbers in [0, 1) in the shape of the weights, to round stochastically to their
            dtype; without them, it rounds to nearest.

    Example:
        >>> rows = {"w": torch.tensor([[0.6, -0.8]]), "g": torch.zeros(1, 2)}
        >>> turn = turn_neurons(gram(rows, fan_in_dims=(1,)), {"exp_avg_norm": torch.zeros(1, 1)},
        ...                     fan_in=2, step=1, lr=0.01, dtype=torch.float32, hyper=Hyper())
        >>> torch.equal(apply_turn(rows, turn), rows["w"])
        True
    """
    old, new = rows["w"], turn.weight.shift
    for coefficient, row in zip(turn.weight.coefficients, rows.values(), strict=True):
        new = torch.addcmul(new, coefficient, row.to(coefficient.dtype))
    rounded = new.to(old.dtype) if noise is None else round_stochastic(new, old.dtype, noise)
    return torch.where(turn.moves, rounded, old)


def _finish(
    weight: Affine,
    moves: Tensor,
    average: Average,
    state: Mapping[str, Tensor],
    step: int | Tensor,
    lr: float | Tensor,
    hyper: Hyper,
) -> Turn:
    old = state["exp_avg_norm"]
    new = root_of(average, old.dtype)
    is_finite = torch.isfinite(new)
    for x in (*weight.coefficients, weight.shift):
        is_finite = is_finite & torch.isfinite(x)
    # Not as_tensor(lr != 0), since the comparison may be symbolic under torch.compile.
    is_active = torch.ones_like(is_finite) & (lr != 0)
    is_written = is_active
    if hyper.nonfinite != "propagate":
        is_written = is_finite & is_active
        kept = average_without(old, beta=hyper.beta, step=step, norm=hyper.norm)
        new = torch.where(is_finite, new, kept)
    new_state = {"exp_avg_norm": torch.where(is_active, new, old)}
    return Turn(weight, moves & is_written, new_state, is_finite, is_written)
