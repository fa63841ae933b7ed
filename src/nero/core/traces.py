"""Detect trained matrices by the traces that training leaves.

The entries of a fresh matrix are independent draws with one scale. Training makes some rows or columns
longer than others, and a few directions stand out. Each trace is a z-score against independent entries:

| trace | statistic | law of independent entries |
|---|---|---|
| long rows or columns | spread of their mean squares | chi-squared, by Wilson and Hilferty's cube root |
| directions | largest singular value | Tracy and Widom's centring and scale |

The score is the smaller of the two, because unusual initializations show one of them: Laplace draws the
first, and draws with a nonzero mean the second.
"""

import math

import torch
from torch import Tensor

MIN_SIZE = 16
"""With fewer rows or columns the score means nothing."""
THRESHOLD = 6.0
"""Fresh matrices stay below this score."""


def training_score(matrix: Tensor) -> float:
    """Score how much a matrix differs from a fresh one; minus infinity if it is too small to judge.

    Ignores rows and columns of zeros, such as padding or pixels that are never lit. A score at or below
    `THRESHOLD` is an upper bound, since the second trace is then not computed.

    Example:
        >>> from nero.core.traces import training_score
        >>> fresh = torch.randn(64, 64)
        >>> training_score(fresh) < 6 < training_score(fresh * torch.linspace(0.5, 2, 64) + 0.5)
        True
    """
    matrix = matrix.float()
    size = matrix.square()
    rows, columns = size.sum(1) > 0, size.sum(0) > 0
    if not (rows.all() and columns.all()):
        matrix = matrix[rows][:, columns]
    if min(matrix.shape) < MIN_SIZE:
        return -math.inf
    limit = 5 * matrix.square().mean().sqrt()
    matrix = matrix.clamp(-limit, limit)  # a truncated normal may leave one entry far out
    squares = matrix.square()
    length = max(_spread(squares, dim) for dim in (0, 1))
    return min(length, _largest_direction(matrix)) if length > THRESHOLD else length


def _spread(squares: Tensor, dim: int) -> float:
    n, count = squares.shape[dim], squares.shape[1 - dim]
    q = squares.mean(dim)
    # Independent entries give var(q) / mean(q)^2 = (kurtosis - 1) / n
    kurtosis = (squares.square().mean(dim) / q.square()).mean().clamp(1.05, 3.0)
    ratio = (q.var() / q.mean().square() * n / (kurtosis - 1)).item()
    variance = 2 / 9 * (1 + 6 / n) / (count - 1)
    return float((ratio ** (1 / 3) - (1 - variance)) / math.sqrt(variance))


def _largest_direction(matrix: Tensor) -> float:
    generator = torch.Generator().manual_seed(0)  # leaves the global RNG untouched
    direction = torch.randn(matrix.shape[1], generator=generator).to(matrix)
    for _ in range(12):
        direction = matrix.T @ (matrix @ direction)
        direction /= direction.norm()
    largest_sq = ((matrix @ direction).square().sum() / matrix.square().mean()).item()
    rows, columns = math.sqrt(matrix.shape[0] - 1), math.sqrt(matrix.shape[1])
    scale = (rows + columns) * (1 / rows + 1 / columns) ** (1 / 3)
    return float((largest_sq - (rows + columns) ** 2) / scale)
