r"""Nero's update (Algorithm 1), written over the five sums.

For a neuron of fan-in n, step size eta and running average ``v``:

    v <- beta*v + (1-beta)*||g||^2
    k  = eta * ||w|| / sqrt(v / (1-beta^t))
    w <- w - k*g ;  w <- w - mean(w) ;  w <- radius * w/||w||

The last line is affine in the row, ``w' = p*w + q*g + r``, and its coefficients follow from the sums:

    m = (Sum w - k*Sum g)/n                                     the mean after the step
    c = Sum w^2 - 2k*Sum w*g + k^2*Sum g^2 - n*m^2              the squared norm after centring
    p = radius/sqrt(c)      q = -k*p      r = -m*p

so the row is read once and written once. The average is kept as its root, the paper's
$\bar g$, because squares of float32 gradients leave float32's range at norms of 1e-20 and
1e+20, and roots do not.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nero.functional.constraint import BALANCED, Sphere, target_radius
from nero.functional.precision import sum_dtype
from nero.functional.rounding import round_stochastic
from nero.functional.sums import NeuronSums


class Turn(NamedTuple):
    """The update of every neuron as ``w' = p*w + q*g + r``, one entry a neuron."""

    p: Tensor
    q: Tensor
    r: Tensor
    moves: Tensor
    """Which neurons are written at all."""
    avg_norm: Tensor
    """The new running average, as a root."""
    is_finite: Tensor
    """Which neurons had an update that can be represented."""


def bias_correction(beta: float, step: int | Tensor) -> float | Tensor:
    """Compute ``1 - beta**step`` without cancellation, in double precision.

    Example:
        >>> bias_correction(0.999, 1)
        0.001...
    """
    log_beta = math.log(beta) if beta > 0 else -math.inf
    if isinstance(step, Tensor):
        return -torch.expm1(step.to(sum_dtype(step)) * log_beta)
    return -math.expm1(step * log_beta)


def turn_neurons(
    sums: NeuronSums,
    avg_norm: Tensor,
    *,
    fan_in: int,
    step: int | Tensor,
    lr: float | Tensor,
    beta: float,
    dtype: torch.dtype,
    constraint: Sphere = BALANCED,
    radius: Tensor | None = None,
    zero_norm: float = 0.01,
    propagate_nonfinite: bool = False,
) -> Turn:
    """Turn sums into the coefficients of every neuron's new row.

    Args:
        sums: the five sums, over the whole fan-in even where it is sharded.
        avg_norm: root of the running average, before this step.
        fan_in: number of weights of one neuron.
        step: number of this update of the parameter, counted from one.
        lr: the angle to turn, ``eta``; at exactly zero nothing changes, the average included.
        beta: averaging constant.
        dtype: working dtype of the weights, for the coefficients.
        constraint: where neurons may live.
        radius: the norm of each neuron, for ``Sphere(radius="initial")``.
        zero_norm: the norm that a zero neuron takes where ``constraint`` names none.
        propagate_nonfinite: let NaN and inf through instead of skipping the neuron.

    Note:
        - A neuron whose gradient is exactly zero does not move; its average decays.
        - A neuron without direction (zero, constant, or cancelled by the step) takes the direction
          of ``-g``. If the centred gradient has none either, the neuron stays.
        - A neuron whose gradient is not finite is skipped, and keeps its average.

    Example:
        >>> w, g = torch.tensor([[1.0, -1.0, 0.0]]) / 2**0.5, torch.tensor([[0.0, 0.0, 1.0]])
        >>> sums = neuron_sums(w, g, fan_in_dims=(1,))
        >>> turn = turn_neurons(sums, torch.zeros(1, 1), fan_in=3, step=1, lr=0.01, beta=0.999,
        ...                     dtype=torch.float32)
        >>> round(turn.q.item(), 4)
        -0.01
    """
    s = sums
    target = target_radius(constraint, radius)
    average_sq, correction = _average_sq(avg_norm, s.grad_sq, beta, step)

    # k = eta * ||w|| / sqrt(v / (1 - beta^t))
    k = lr * (s.weight_sq * correction / _or_one(average_sq)).sqrt()
    mean = (s.weight - k * s.grad) / fan_in if constraint.centre else torch.zeros_like(k)
    kwg, kkgg = k * s.weight_grad, k * k * s.grad_sq
    norm_sq = s.weight_sq - 2 * kwg + kkgg - fan_in * mean * mean
    # Where these terms cancel, the row has no direction left. To set its norm, half the digits of the sum
    # must be right; to leave it free, any.
    eps = torch.finfo(norm_sq.dtype).eps
    noise = 64 * eps if target is None else math.sqrt(eps)
    has_direction = (s.weight_sq > 0) & (norm_sq > noise * (s.weight_sq + kkgg + 2 * kwg.abs()))
    norm = torch.where(has_direction, norm_sq, 1.0).sqrt()
    p = torch.ones_like(k) if target is None else target / norm

    # Without direction: w' = -|target| * (g - mean(g)) / ||g - mean(g)||
    grad_mean = s.grad / fan_in if constraint.centre else torch.zeros_like(k)
    grad_norm_sq = s.grad_sq - fan_in * grad_mean * grad_mean
    grad_has_direction = grad_norm_sq > noise * s.grad_sq
    start = zero_norm if target is None else target
    start = start / torch.where(grad_has_direction, grad_norm_sq, 1.0).sqrt()

    # NaN and inf take the usual path, where they reach the coefficients and are seen.
    usual = has_direction | ~torch.isfinite(norm_sq)
    turn = (
        torch.where(usual, p, 0.0).to(dtype),
        torch.where(usual, -k * p, -start).to(dtype),
        torch.where(usual, -mean * p, start * grad_mean).to(dtype),
    )
    # `!= 0` holds for NaN, which must count as a gradient.
    moves = (s.grad_sq != 0) & (usual | grad_has_direction)
    return _finish(*turn, moves, average_sq, avg_norm, lr, propagate_nonfinite)


def turn_elements(
    grad: Tensor,
    avg_norm: Tensor,
    *,
    scale: float | Tensor,
    step: int | Tensor,
    lr: float | Tensor,
    beta: float,
    dtype: torch.dtype,
    propagate_nonfinite: bool = False,
) -> Turn:
    """Compute the update of parameters that have no fan-in (Algorithm 1, bias update).

    ``b <- b - eta * sigma / g_bar * g``: each element is a neuron of its own, whose norm is replaced
    by the initial scale ``sigma`` of the whole tensor.

    Args:
        grad: gradient.
        avg_norm: root of the running average, before this step, in the shape of ``grad``.
        scale: the initial scale ``sigma``.
        step: number of this update of the parameter, counted from one.
        lr: step size ``eta``; at exactly zero nothing changes, the average included.
        beta: averaging constant.
        dtype: working dtype of the weights.
        propagate_nonfinite: let NaN and inf through instead of skipping the element.

    Example:
        >>> g = torch.tensor([3.0, -5.0])
        >>> turn = turn_elements(g, torch.zeros(2), scale=1.0, step=1, lr=0.01, beta=0.999,
        ...                      dtype=torch.float32)
        >>> turn.q * g
        tensor([-0.0100,  0.0100])
    """
    g = grad.to(sum_dtype(grad))
    average_sq, correction = _average_sq(avg_norm, g * g, beta, step)
    k = lr * scale * (correction / _or_one(average_sq)).sqrt()
    one, zero = torch.ones_like(k), torch.zeros_like(k)
    return _finish(
        one.to(dtype), (-k).to(dtype), zero.to(dtype), g != 0, average_sq, avg_norm, lr,
        propagate_nonfinite,
    )  # fmt: skip


def apply_turn(weight: Tensor, grad: Tensor, turn: Turn, *, noise: Tensor | None = None) -> Tensor:
    """Compute ``p*w + q*g + r`` in working precision; rows that do not move keep their bits.

    Args:
        weight: weights.
        grad: gradient.
        turn: the coefficients.
        noise: uniform numbers in [0, 1) in the shape of ``weight``, to round stochastically to its
            dtype; without them, to nearest.

    Example:
        >>> w, g = torch.tensor([[0.6, -0.8]]), torch.zeros(1, 2)
        >>> sums = neuron_sums(w, g, fan_in_dims=(1,))
        >>> turn = turn_neurons(sums, torch.zeros(1, 1), fan_in=2, step=1, lr=0.01, beta=0.999,
        ...                     dtype=torch.float32)
        >>> torch.equal(apply_turn(w, g, turn), w)
        True
    """
    w, g = weight.to(turn.p.dtype), grad.to(turn.p.dtype)
    new = torch.addcmul(torch.addcmul(turn.r, turn.p, w), turn.q, g)
    rounded = new.to(weight.dtype) if noise is None else round_stochastic(new, weight.dtype, noise)
    return torch.where(turn.moves, rounded, weight)


def _average_sq(
    avg_norm: Tensor, grad_sq: Tensor, beta: float, step: int | Tensor
) -> tuple[Tensor, float | Tensor]:
    # v <- beta * v + (1 - beta) * ||g||^2        (Algorithm 1)
    average_sq = beta * avg_norm.to(grad_sq.dtype).square() + (1 - beta) * grad_sq
    return average_sq, bias_correction(beta, step)


def _finish(
    p: Tensor,
    q: Tensor,
    r: Tensor,
    moves: Tensor,
    average_sq: Tensor,
    avg_norm: Tensor,
    lr: float | Tensor,
    propagate_nonfinite: bool,
) -> Turn:
    # The root of zero has an infinite slope: keep it out of the backward pass.
    new_avg = torch.where(average_sq != 0, _or_one(average_sq).sqrt(), 0.0).to(avg_norm.dtype)
    is_finite = torch.isfinite(p) & torch.isfinite(q) & torch.isfinite(r) & torch.isfinite(new_avg)
    written = (lr != 0) if propagate_nonfinite else is_finite & (lr != 0)
    new_avg = torch.where(torch.as_tensor(written, device=avg_norm.device), new_avg, avg_norm)
    return Turn(p, q, r, moves & written, new_avg, is_finite)


def _or_one(x: Tensor) -> Tensor:
    # A denominator that is never zero; what it divides is masked elsewhere.
    return torch.where(x != 0, x, 1.0)
