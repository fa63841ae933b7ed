"""A GPT: pre-LayerNorm blocks, learned positions, an untied head and no biases."""

from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from nero_lab.models.block import Block, MakePerceptron, Perceptron, init_blocks_


class GPT(nn.Module):
    """A decoder-only transformer over tokens, which may be characters.

    Args:
        vocabulary: number of different tokens.
        context: the longest text that it reads.
        num_layers: number of blocks.
        width: features of the stream.
        num_heads: of attention in each block.
        dropout: of the stream and in each block.
        perceptron: makes the second half of each block.
    """

    outer_layers: ClassVar[tuple[str, ...]] = ("token", "position", "head")
    """The first and last layers: those that optimizers for hidden matrices leave to another."""

    def __init__(
        self,
        *,
        vocabulary: int,
        context: int,
        num_layers: int,
        width: int,
        num_heads: int,
        dropout: float = 0.0,
        perceptron: MakePerceptron = Perceptron,
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(
            *(
                Block(width, num_heads, dropout=dropout, perceptron=perceptron)
                for _ in range(num_layers)
            )
        )
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, vocabulary, bias=False)
        init_blocks_(self, num_layers=num_layers)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of each next token."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        stream = self.dropout(self.token(tokens) + self.position(positions))
        return cast(Tensor, self.head(self.norm(self.blocks(stream))))
