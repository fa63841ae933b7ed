"""The block of a pre-LayerNorm transformer: attention, then a perceptron, without biases."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention


class Perceptron(nn.Module):
    """Two layers with a GELU between them, four times as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.widen = nn.Linear(width, 4 * width, bias=False)
        self.shrink = nn.Linear(4 * width, width, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """Return new features, each position by itself."""
        return cast(Tensor, self.shrink(gelu(self.widen(features))))


MakePerceptron = Callable[[int], nn.Module]
"""Builds the replacement of an MLP from the width of the residual stream."""


class Block(nn.Module):
    """Attention, then a perceptron, each added to the stream.

    Args:
        width: features of the stream.
        num_heads: of attention; they share the width.
        dropout: of attention weights and of whatever is added to the stream.
        is_causal: let a position see itself and the past only.
        perceptron: makes the second half of the block.
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        dropout: float = 0.0,
        is_causal: bool = True,
        perceptron: MakePerceptron = Perceptron,
    ) -> None:
        super().__init__()
        self.num_heads, self.is_causal = num_heads, is_causal
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.perceptron_norm = nn.LayerNorm(width, bias=False)
        self.perceptron = perceptron(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, stream: Tensor) -> Tensor:
        """Return the stream after this block."""
        stream = stream + self.dropout(self.project(self._attend(self.attention_norm(stream))))
        return stream + cast(Tensor, self.dropout(self.perceptron(self.perceptron_norm(stream))))

    def _attend(self, features: Tensor) -> Tensor:
        # (batch, time, 3 * width) -> three times (batch, head, time, width / heads)
        heads = self.query_key_value(features).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        dropout = self.dropout.p if self.training else 0.0
        on_cpu = features.device.type == "cpu"
        if on_cpu:  # whose backward pass of attention in bfloat16 is ten times that in float32
            query, key, value = query.float(), key.float(), value.float()
        with torch.autocast("cpu", enabled=False) if on_cpu else nullcontext():
            mixed = scaled_dot_product_attention(
                query, key, value, dropout_p=dropout, is_causal=self.is_causal
            )
        return mixed.transpose(1, 2).flatten(2)


def init_blocks_(model: nn.Module, *, num_layers: int) -> None:
    """Initialize all weights of a transformer in place; gains stay at one.

    Weights begin as normal numbers of standard deviation 0.02; those that write into the residual
    stream are smaller by the root of the number of writers, so that depth does not widen the stream.
    """
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            writes = name.endswith((".project.weight", ".shrink.weight"))
            nn.init.normal_(parameter, std=0.02 / ((2 * num_layers) ** 0.5 if writes else 1))
