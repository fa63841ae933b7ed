"""A small GPT: pre-LayerNorm blocks, learned positions, an untied head and no biases."""

from contextlib import nullcontext
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention


class GPT(nn.Module):
    """A decoder-only transformer over characters.

    Weights begin as normal numbers of standard deviation 0.02; those that write into the residual
    stream are smaller by the root of the number of writers, so that depth does not widen the stream.
    """

    outer_layers: ClassVar[tuple[str, ...]] = ("token", "position", "head")
    """The first and last layers: those that optimisers for hidden matrices leave to another."""

    def __init__(
        self,
        *,
        vocabulary: int,
        context: int,
        num_layers: int,
        width: int,
        num_heads: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, num_heads, dropout) for _ in range(num_layers)))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                writes = name.endswith((".project.weight", ".shrink.weight"))
                nn.init.normal_(parameter, std=0.02 / ((2 * num_layers) ** 0.5 if writes else 1))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of each next character."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        stream = self.dropout(self.token(tokens) + self.position(positions))
        return cast(Tensor, self.head(self.norm(self.blocks(stream))))


class Block(nn.Module):
    """Attention to the past, then a two-layer perceptron, each added to the stream."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.perceptron_norm = nn.LayerNorm(width, bias=False)
        self.widen = nn.Linear(width, 4 * width, bias=False)
        self.shrink = nn.Linear(4 * width, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, stream: Tensor) -> Tensor:
        """Return the stream after this block."""
        stream = stream + self.dropout(self.project(self._attend(self.attention_norm(stream))))
        hidden = gelu(self.widen(self.perceptron_norm(stream)))
        return stream + cast(Tensor, self.dropout(self.shrink(hidden)))

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
                query, key, value, dropout_p=dropout, is_causal=True
            )
        return mixed.transpose(1, 2).flatten(2)
