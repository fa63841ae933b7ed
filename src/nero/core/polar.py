r"""The polar direction: of a matrix, the orthogonal matrix that is nearest to it.

A gradient of a layer is mostly a few directions that many neurons share, and its rows all turn along them.
Its polar factor has the same row and column spaces, and all singular values at one: what is rare in the
gradient counts as much as what is common. Neurons then turn along its rows, as always.

The factor is found by Newton-Schulz steps, which are matrix products only:
``X <- a*X + (b*A + c*A^2)*X`` with ``A = X*X^T``. The coefficients are those of Muon (Jordan et al., 2024),
which in five steps bring singular values to between 0.6 and 1.2, and no closer; those below two thousandths
of the matrix's norm stay smaller.
"""

import torch
from torch import Tensor

from nero.core.precision import or_one

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_NUM_STEPS = 5


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
