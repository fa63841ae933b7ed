"""Attention and positions, as both transformers of the paper have them."""

import math

import torch
from torch import Tensor, nn


def attend(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor, drop: nn.Module) -> Tensor:
    """Mix values by the softmax of scaled products of queries and keys.

    Written out because torch's own attention has no fast path for dropout, and on short sequences on
    a CPU it is slower even without.

    Args:
        query: (batch, head, time, features); ``key`` and ``value`` likewise.
        key: what queries are compared with.
        value: what is mixed.
        hidden: true where a query must not see a key; broadcast to (batch, head, time, time).
        drop: what is applied to the attention weights.

    Returns:
        (batch, time, head * features).
    """
    scores = ((query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)).float()
    weights = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
    mixed: Tensor = drop(weights) @ value
    return mixed.transpose(1, 2).flatten(2)


def sinusoids(length: int, width: int) -> Tensor:
    """Return sines and cosines of positions, of wavelengths from 2 pi to 10,000 times 2 pi."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
