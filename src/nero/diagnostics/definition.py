"""An independent float64 implementation of Nero's update, to check real steps against.

Written from Algorithm 1 and the definitions of the options, over a matrix with one row per neuron. It has
no arithmetic in common with the optimizer: no Gram matrix, no coefficients, no state. A parameter without
fan-in is a matrix with one element per row.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nero.core.spec import Hyper


@dataclass
class Memory:
    """Algorithm 1's state for one parameter, tracked by the check itself."""

    num_steps: int
    norm: Tensor
    """Per row: the root of the mean square, or the peak; NaN where it is unknown."""
    average: Tensor | None
    """The averaged gradient, if there is momentum."""
    length: Tensor | float | None
    """The scale of a step where it is not the row's norm: a bias's initial scale."""
    radius: Tensor | float | None
    """The norm that rows must have; ``None`` if norms are free."""
    stretch: Tensor | float = 0.0
    """Per row: the length of the averaged gradients over that of the direction, which multiplies errors."""


def largest_turn(hyper: Hyper, lr: float, num_steps: int | None) -> float:
    """Return the largest angle, in radians, by which any neuron may turn at a step.

    A step moves a row by lr * ||w|| * ||d|| / g_bar along -d, so it turns by at most the arcsine of
    lr * ||d|| / g_bar. A peak is never below ||d||. A mean square with its correction is never below
    (1 - beta) / (1 - beta^t) * ||d||^2. Momentum and polar directions change d, but the running norm is
    that of d itself, so the bound still holds.

    Args:
        hyper: the options.
        lr: the learning rate.
        num_steps: number of this step, counted from one; ``None`` for the bound of all steps.

    Example:
        >>> from nero.core.spec import Hyper
        >>> from nero.diagnostics.definition import largest_turn
        >>> [round(largest_turn(Hyper(beta=0.99), 0.01, t), 3) for t in (1, 100, None)]
        [0.01, 0.08, 0.1]
        >>> round(largest_turn(Hyper(norm="peak"), 0.01, None), 3)
        0.01
    """
    ratio = 1.0
    if hyper.norm == "rms":
        behind = 1.0 if num_steps is None else 1.0 - hyper.beta**num_steps
        ratio = math.sqrt(behind / (1.0 - hyper.beta))
    sine = lr * ratio
    return math.asin(sine) if sine < 1 else math.pi


def next_rows(
    memory: Memory,
    w: Tensor,
    g: Tensor,
    hyper: Hyper,
    lr: float,
    num_rows: int,
    device: torch.device,
) -> Tensor:
    """Return the rows after a step, and update the memory; NaN where they cannot be known.

    Args:
        memory: before the step; it is changed.
        w: rows before the step.
        g: their gradients.
        hyper: the options.
        lr: the learning rate.
        num_rows: rows per matrix, for the polar direction.
        device: where to compute the polar direction, which takes most of the time.
    """
    if lr == 0:
        return w
    memory.num_steps += 1
    is_finite = g.isfinite().all(1, keepdim=True)
    g = torch.where(is_finite, -g if hyper.maximize else g, 0.0)
    g = g + hyper.gain_penalty * (w - 1)
    d = g
    if memory.average is not None:
        # m <- mu*m + (1-mu)*g, then along mu*m + (1-mu)*g
        mu = hyper.momentum
        mixed = mu * memory.average + (1 - mu) * g
        d = mu * mixed + (1 - mu) * g
        lengths = mixed.norm(dim=1) + memory.average.norm(dim=1)
        memory.stretch = lengths / d.norm(dim=1).clamp(min=1e-300)
        memory.average = torch.where(is_finite, mixed, memory.average)
    if hyper.direction == "polar":
        matrices = torch.where(is_finite, d, 0.0).view(-1, num_rows, d.shape[1])
        dtype = torch.float32 if device.type == "mps" else d.dtype  # has no float64
        d = polar(matrices.to(device, dtype)).to(d).reshape(d.shape)
    size = d.norm(dim=1, keepdim=True)
    if hyper.norm == "peak":
        # u <- max(beta*u, ||d||)
        norm = average = torch.maximum(hyper.beta * memory.norm, size)
    else:
        # v <- beta*v + (1-beta)*||d||^2, corrected by 1 - beta^t        (Algorithm 1)
        norm = (hyper.beta * memory.norm**2 + (1 - hyper.beta) * size**2).sqrt()
        average = norm / math.sqrt(1 - hyper.beta**memory.num_steps)
    memory.norm = torch.where(
        is_finite, norm, torch.nan
    )  # skipped rows are not followed any further
    length = w.norm(dim=1, keepdim=True) if memory.length is None else memory.length
    new = w - lr * length / average * d  # w <- w - eta * ||w|| / g_bar * d
    if memory.length is None:
        centre, radius = hyper.constraint.centre, memory.radius
        lost = has_no_direction(w, centre)
        if radius is None:
            start = torch.as_tensor(hyper.bias_scale, dtype=w.dtype)
        else:
            start = torch.as_tensor(radius, dtype=w.dtype)
        new = _projected(torch.where(lost, -d, new), centre, torch.where(lost, start, torch.nan))
        if radius is not None:
            new = _projected(new, centre, start)
    moves = (size != 0) | ~is_finite
    kept = w if hyper.nonfinite == "skip" else torch.full_like(w, torch.nan)
    return torch.where(moves, torch.where(is_finite, new, kept), w)


def polar(matrices: Tensor) -> Tensor:
    """Return five Newton-Schulz steps from matrices of Frobenius norm one, as Muon takes them."""
    x: Tensor = matrices / matrices.abs().amax((-2, -1), keepdim=True).clamp(min=1e-300)
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-300)
    is_tall = x.shape[-2] > x.shape[-1]
    x = x.mT if is_tall else x
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x - 4.7750 * (a @ x) + 2.0315 * (a @ (a @ x))
    turned: Tensor = x.mT if is_tall else x
    return turned


def has_no_direction(w: Tensor, centre: bool) -> Tensor:
    """Return which rows are zero, or constant if their mean must be zero."""
    spread = w - w.mean(1, keepdim=True) if centre else w
    is_lost: Tensor = spread.norm(dim=1, keepdim=True) <= 1e-4 * w.norm(dim=1, keepdim=True)
    return is_lost


def _projected(w: Tensor, centre: bool, radius: Tensor) -> Tensor:
    """Remove the mean, and set the norm of the rows where ``radius`` is a number."""
    w = w - w.mean(1, keepdim=True) if centre else w
    return torch.where(radius.isnan(), w, radius * w / w.norm(dim=1, keepdim=True))
