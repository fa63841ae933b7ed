r"""The running norm of a neuron's gradients, by which a step is divided.

``norm="rms"`` is the paper's, a running mean square:

    v <- beta*v + (1-beta)*||g||^2 ;  corrected: v/(1-beta^t)        (Algorithm 1)

The state is its root, the paper's $\bar g$, because squares of float32 gradients leave float32's range at
norms of 1e-20 and 1e+20. An idle neuron has a small average, so its next gradient turns it by up to
sqrt(1/(1-beta)) times the learning rate, 32 times at 0.999.

``norm="peak"`` is the largest norm so far, decaying at the rate of beta:

    u <- max(beta*u, ||g||)

It is never below this step's norm, so no neuron turns by more than the learning rate at any step. It needs
no correction, and uses the same state.

DEPARTURE: the paper does not cover non-finite gradients. ``t`` counts the parameter's steps, for all of its
neurons, so the average of a skipped neuron must not fall behind. It grows with the correction,

    v <- v * (1-beta^t)/(1-beta^(t-1))

which leaves the corrected average unchanged: the missing gradient counts as one of average length. That is
not enough if few gradients came before, or none. They would count for ``t`` steps, and the next long one
would turn the neuron by up to sqrt(t) times the learning rate. So a neuron that has missed a step follows

    v <- max(beta*v + (1-beta)*||g||^2, (1-beta^t)*||g||^2)

and turns by no more than the learning rate, until a gradient is no longer than the average. The sign of the
root marks these neurons: it is negative, or -0.0 before the first gradient. A sign needs no memory and no
new key in checkpoints; older versions load it, and square it. Nothing changes if nothing is skipped. A
gradient of exactly zero is not a missing one: Algorithm 1 averages it like any other. A peak is never too
small, so a skipped neuron keeps it, and its sign means nothing.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nero.core.arguments import real_number
from nero.core.precision import or_one, sum_dtype
from nero.core.spec import Norm, unit_interval


class Average(NamedTuple):
    """Every neuron's running norm, including this step's gradient."""

    squared: Tensor
    """Its square: ``v`` before the correction, or ``u^2``."""
    correction: float | Tensor
    """The divisor of the square."""
    is_behind: Tensor
    """Which neurons have missed steps and not caught up."""


def average_with(
    old: Tensor, grad_sq: Tensor, *, beta: float, step: int | Tensor, norm: Norm = "rms"
) -> Average:
    """Average the squared norms of gradients, or keep their peak.

    Args:
        old: the running norm before this step; negative for neurons that have missed steps.
        grad_sq: squared norms.
        beta: decay of the running norm.
        step: number of this step, counted from one.
        norm: ``"rms"`` or ``"peak"``.

    Example:
        >>> from nero.core.average import average_with
        >>> old, nine = torch.tensor([0.0, -0.0]), torch.tensor([9.0, 9.0])
        >>> new = average_with(old, nine, beta=0.9, step=5)
        >>> (new.squared / new.correction).sqrt()  # the second has missed four steps
        tensor([1.4825, 3.0000])
        >>> average_with(torch.tensor([5.0, 0.1]), nine, beta=0.9, step=5, norm="peak").squared.sqrt()
        tensor([4.5000, 3.0000])
    """
    old_sq = old.to(grad_sq.dtype).square()
    if norm == "peak":
        # u <- max(beta * u, ||g||)
        squared = torch.maximum(beta * beta * old_sq, grad_sq)
        return Average(squared, 1.0, torch.signbit(old) & (grad_sq == 0))
    correction = bias_correction(beta, step)
    # v <- beta * v + (1 - beta) * ||g||^2        (Algorithm 1)
    squared = beta * old_sq + (1 - beta) * grad_sq
    is_behind, least = torch.signbit(old), correction * grad_sq
    is_short = is_behind & (squared < least)
    squared = torch.where(is_short, least, squared)
    return Average(squared, correction, is_short | (is_behind & (grad_sq == 0)))


def root_of(average: Average, dtype: torch.dtype) -> Tensor:
    """Return the signed root of an average, as stored in the state of this dtype."""
    squared = average.squared
    # The root of zero has an infinite slope: keep it out of the backward pass.
    root = torch.where(squared != 0, or_one(squared).sqrt(), 0.0).to(dtype)
    return torch.where(average.is_behind, -root, root)


def average_without(old: Tensor, *, beta: float, step: int | Tensor, norm: Norm = "rms") -> Tensor:
    """Return the new state of neurons whose gradient is skipped; the arguments are as in `average_with`.

    Example:
        >>> from nero.core.average import average_without
        >>> average_without(torch.tensor([3.0, 0.0]), beta=0.0, step=2)
        tensor([-3., -0.])
    """
    grown = old.abs() * (1.0 if norm == "peak" else growth(beta, step))
    return -grown.to(old.dtype).clamp(max=torch.finfo(old.dtype).max)


def growth(beta: float, step: int | Tensor) -> float | Tensor:
    """Return the root of ``(1 - beta**step)/(1 - beta**(step - 1))``, or one at the first step."""
    if isinstance(step, Tensor):
        before = bias_correction(beta, (step - 1).clamp(min=1))
        ratio = bias_correction(beta, step) / before
        return torch.as_tensor(ratio).sqrt()
    return math.sqrt(bias_correction(beta, step) / bias_correction(beta, max(step - 1, 1)))


def bias_correction(beta: float, step: int | Tensor) -> float | Tensor:
    """Compute ``1 - beta**step`` without cancellation, in double precision.

    Example:
        >>> bias_correction(0.999, 1)
        0.001...
    """
    beta = unit_interval("beta", beta)
    log_beta = math.log(beta) if beta > 0 else -math.inf
    if isinstance(step, Tensor):
        return -torch.expm1(step.to(sum_dtype(step)) * log_beta)
    if not real_number("step", step) >= 1:
        raise ValueError(f"step counts from 1, so it must be 1 or more, but is {step}")
    return -math.expm1(step * log_beta)
