r"""The polar direction: of a matrix, the orthogonal matrix that is nearest to it.

A gradient of a layer is mostly a few directions that many neurons share, and its rows all turn along them.
Its polar factor has the same row and column spaces, and all singular values at one: what is rare in the
gradient counts as much as what is common. Neurons then turn along its rows, as always.

The factor is found by Newton-Schulz steps, which are matrix products only:
``X <- a*X + (b*A + c*A^2)*X`` with ``A = X*X^T``. The coefficients are those of Muon (Jordan et al., 2024),
which in five steps bring singular values to between 0.6 and 1.2, and no closer; those below two thousandths
of the matrix's norm stay smaller.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nero.core.neurons import Neurons
from nero.core.precision import or_one, working_dtype

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_NUM_STEPS = 5


def polar_direction(direction: Tensor, neurons: Neurons) -> Tensor:
    """Return the polar factor of every matrix of a parameter, in the parameter's shape and working dtype.

    A neuron whose direction is zero has a row of zeros. One whose direction is not finite has a row of NaN,
    and no part in the others' rows.

    Args:
        direction: the gradient, or its average, viewed so that ``neurons.fan_in_dims`` applies.
        neurons: rows of the matrix; the last dim that indexes neurons runs over them, the ones before it
            over matrices, such as those of experts.

    Example:
        >>> from nero.core.polar import polar_direction
        >>> from nero.layout import neurons
        >>> found = polar_direction(torch.tensor([[3.0, 0.0], [0.0, 0.1]]), neurons(0).at((2, 2)))
        >>> bool(((found.diagonal() > 0.6) & (found.diagonal() < 1.3)).all())
        True
    """
    rows = [d for d in range(direction.ndim) if d not in neurons.fan_in_dims]
    order = (*rows, *neurons.fan_in_dims)
    turned = direction.to(working_dtype(direction.dtype)).permute(order)
    num_rows = turned.shape[len(rows) - 1]
    matrices = turned.reshape(
        math.prod(turned.shape[: len(rows) - 1]), num_rows, math.prod(turned.shape[len(rows) :])
    )
    is_finite = torch.isfinite(matrices).all(dim=-1, keepdim=True)
    factor = newton_schulz(torch.where(is_finite, matrices, 0.0))
    factor = torch.where(is_finite, factor.to(matrices.dtype), math.nan)
    return factor.view(turned.shape).permute(_inverse(order)).contiguous()


def newton_schulz(matrices: Tensor) -> Tensor:
    """Return matrices with the singular vectors of these, and all singular values near one.

    On GPUs in bfloat16, which is accurate enough and much faster there; float64 stays what it is.

    Args:
        matrices: finite, in the last two dims.
    """
    if matrices.numel() == 0:
        return matrices
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if is_tall else matrices
    # By the largest entry first, because squares of large and small gradients leave float32's range.
    x = x / or_one(x.abs().amax(dim=(-2, -1), keepdim=True))
    x = x / or_one(torch.linalg.matrix_norm(x, keepdim=True))
    if x.is_cuda and x.dtype == torch.float32:
        x = x.bfloat16()
    a, b, c = _COEFFICIENTS
    for _ in range(_NUM_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)
