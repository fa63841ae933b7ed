r"""The polar direction: the nearest orthogonal matrix to a layer's gradient.

A layer's gradient is dominated by a few directions shared by many neurons. Its polar factor has the same
row and column spaces, but all singular values are one: rare directions count as much as common ones.
Neurons then turn against its rows, as always.

Newton-Schulz steps approximate the factor with matrix products only:
``X <- a*X + (b*A + c*A^2)*X`` with ``A = X*X^T``. With Muon's coefficients (Jordan et al., 2024), five
steps bring singular values to between 0.6 and 1.2; those below 0.002 of the matrix's norm stay smaller.
"""

import torch
from torch import Tensor

from nero.core.precision import or_one

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_NUM_STEPS = 5


def newton_schulz(matrices: Tensor) -> Tensor:
    """Return matrices with the same singular vectors, and all singular values near one.

    Computes in bfloat16 on GPUs, which is accurate enough and much faster, except for float64 input.

    Args:
        matrices: finite, in the last two dims.
    """
    if matrices.numel() == 0:
        return matrices
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if is_tall else matrices
    # Divide by the largest entry first, since squares of large or small gradients leave float32's range.
    x = x / or_one(x.abs().amax(dim=(-2, -1), keepdim=True))
    x = x / or_one(torch.linalg.matrix_norm(x, keepdim=True))
    if x.is_cuda and x.dtype == torch.float32:
        x = x.bfloat16()
    a, b, c = _COEFFICIENTS
    for _ in range(_NUM_STEPS):
        gram = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x
