"""The relative updates that Nero is compared with, as pure functions.

Each changes a parameter in proportion to its size, but not per neuron as Nero does: Madam per synapse;
LAMB, LARS and Fromage per layer. All take and return tensors in working precision
(see [`working_dtype`][nero.core.precision.working_dtype]) and follow their papers; the optimizer classes in
`nero.baselines` describe how well-known implementations differ. The layerwise ones take a ``layer_norm``,
for layers that are sharded.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from nero.core.arguments import check_alike
from nero.core.average import bias_correction
from nero.core.precision import sum_dtype
from nero.core.spec import unit_intervals

LayerNorm: TypeAlias = Callable[[Tensor], Tensor]


def layer_norm(x: Tensor) -> Tensor:
    """Compute the norm of a whole layer."""
    return sum_of_squares(x).sqrt().to(x.dtype)


def sum_of_squares(x: Tensor) -> Tensor:
    """Sum the squares of a whole tensor, in summing precision."""
    norm: Tensor = torch.linalg.vector_norm(x, dtype=sum_dtype(x))
    return norm.square()


def madam_update(
    weight: Tensor,
    grad: Tensor,
    exp_avg_sq: Tensor,
    *,
    max_weight: float | Tensor,
    step: int | Tensor,
    lr: float | Tensor = 0.01,
    beta: float = 0.999,
    max_ratio: float = 8.0,
) -> tuple[Tensor, Tensor]:
    """Multiply every synapse by a factor near one (Madam, Bernstein et al. 2020).

        v <- beta*v + (1-beta)*g^2
        w <- w * exp(-eta * sign(w) * clamp(g/sqrt(v_hat)))        clamped to |.| <= max_ratio
        w <- clamp(w)                                              clamped to |.| <= max_weight

    Returns:
        The new weights and the new running mean square.

    Note:
        A weight keeps its sign, so zero-initialized parameters stay zero.

    Example:
        >>> w, v = madam_update(torch.tensor([1.0, -1.0]), torch.ones(2), torch.zeros(2),
        ...                     max_weight=3.0, step=1)
        >>> w
        tensor([ 0.9900, -1.0101])
    """
    check_alike(weight=weight, grad=grad, exp_avg_sq=exp_avg_sq)
    exp_avg_sq = torch.addcmul(beta * exp_avg_sq, grad, grad, value=1 - beta)
    rms = (exp_avg_sq / bias_correction(beta, step)).sqrt().to(grad.dtype)
    ratio = torch.where(rms > 0, grad / torch.where(rms > 0, rms, 1.0), 0.0)
    ratio = ratio.clamp(-max_ratio, max_ratio)
    weight = weight * torch.exp(-lr * weight.sign() * ratio)
    bound = torch.as_tensor(max_weight, dtype=weight.dtype, device=weight.device)
    return weight.clamp(-bound, bound), exp_avg_sq


def lamb_update(
    weight: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    *,
    step: int | Tensor,
    lr: float | Tensor = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
    weight_decay: float = 0.01,
    max_norm: float = math.inf,
    layer_norm: LayerNorm = layer_norm,
) -> tuple[Tensor, Tensor, Tensor]:
    """Give Adam's direction the norm of the layer (LAMB, You et al. 2020, Algorithm 2).

        u = m_hat/(sqrt(v_hat) + eps) + lambda*w
        w <- w - eta * min(||w||, max_norm)/||u|| * u

    Returns:
        The new weights and the new first and second moments.

    Note:
        If ``||w||`` or ``||u||`` is zero the ratio is one, so zero-initialized layers move.

    Example:
        >>> w, m, v = lamb_update(torch.ones(4), torch.ones(4), torch.zeros(4), torch.zeros(4),
        ...                       step=1, lr=0.1)
        >>> w
        tensor([0.9000, 0.9000, 0.9000, 0.9000])
    """
    check_alike(weight=weight, grad=grad, exp_avg=exp_avg, exp_avg_sq=exp_avg_sq)
    beta1, beta2 = unit_intervals("betas", betas)
    exp_avg = torch.add(beta1 * exp_avg, grad, alpha=1 - beta1)
    exp_avg_sq = torch.addcmul(beta2 * exp_avg_sq, grad, grad, value=1 - beta2)
    rms = (exp_avg_sq / bias_correction(beta2, step)).sqrt()
    update = exp_avg / bias_correction(beta1, step) / (rms + eps) + weight_decay * weight
    size = layer_norm(weight).clamp(max=max_norm)
    scale = lr * _ratio(size, layer_norm(update))
    return torch.addcmul(weight, update, -scale), exp_avg, exp_avg_sq


def lars_update(
    weight: Tensor,
    grad: Tensor,
    momentum_buffer: Tensor,
    *,
    lr: float | Tensor,
    momentum: float = 0.9,
    weight_decay: float = 0.0005,
    trust_coefficient: float = 0.001,
    layer_norm: LayerNorm = layer_norm,
) -> tuple[Tensor, Tensor]:
    """Give momentum SGD a local learning rate per layer (LARS, You et al. 2017, Algorithm 1).

        local = trust * ||w|| / (||g|| + lambda*||w||)
        m <- momentum*m + lr*local*(g + lambda*w) ;  w <- w - m

    Returns:
        The new weights and the new momentum buffer.

    Note:
        If ``||w||`` is zero the local learning rate is one, so zero-initialized layers move.

    Example:
        >>> w, m = lars_update(torch.ones(4), torch.full((4,), 2.0), torch.zeros(4), lr=10.0,
        ...                    weight_decay=0.0)
        >>> w
        tensor([0.9900, 0.9900, 0.9900, 0.9900])
    """
    check_alike(weight=weight, grad=grad, momentum_buffer=momentum_buffer)
    weight_norm = layer_norm(weight)
    grad_norm = layer_norm(grad) + weight_decay * weight_norm
    local = torch.where(
        (weight_norm > 0) & (grad_norm > 0),
        trust_coefficient * _ratio(weight_norm, grad_norm),
        1.0,
    )
    momentum_buffer = momentum * momentum_buffer + lr * local * (grad + weight_decay * weight)
    return weight - momentum_buffer, momentum_buffer


def fromage_update(
    weight: Tensor,
    grad: Tensor,
    *,
    lr: float | Tensor = 0.01,
    layer_norm: LayerNorm = layer_norm,
) -> Tensor:
    """Step by a fraction of the layer's norm (Fromage, Bernstein et al. 2020, Algorithm 1).

        w <- (w - eta * ||w||/||g|| * g) / sqrt(1 + eta^2)

    Note:
        If ``||w||`` is zero the gradient is not rescaled, so zero-initialized layers move; if ``||g||`` is
        zero the layer does not move.

    Example:
        >>> fromage_update(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 5.0]), lr=0.1).norm()
        tensor(1.0000)
    """
    check_alike(weight=weight, grad=grad)
    grad_norm = layer_norm(grad)
    stepped = weight - lr * _ratio(layer_norm(weight), grad_norm) * grad
    return torch.where(grad_norm > 0, stepped / (1 + lr * lr) ** 0.5, weight)


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    usable = (numerator > 0) & (denominator > 0)
    return torch.where(usable, numerator / torch.where(usable, denominator, 1.0), 1.0)
