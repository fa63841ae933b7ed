"""The paper's small transformer: 19 tensors, residual connections, and no layer norm."""

import math
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from nero_lab.models.attention import attend, sinusoids
from nero_lab.models.word_losses import word_losses


class LanguageModel(nn.Module):
    """A causal transformer encoder between an embedding and an untied decoder.

    Args:
        vocabulary: number of words.
        num_layers: number of encoder layers.
        width: length of the feature vector of a word.
        num_heads: number of attention heads.
        hidden: width of the hidden layer of each perceptron.
        dropout: on embeddings, attention weights, hidden layers and what is added to the stream.
        longest: longest window.
    """

    outer_layers: ClassVar[tuple[str, ...]] = ("embedding", "decoder")
    """The first and last layers: those that optimizers for hidden matrices leave to another."""
    scales_embedding: ClassVar[bool] = True
    """Its rows are multiplied by the root of their length, so that they need not have that norm."""

    def __init__(
        self,
        *,
        vocabulary: int,
        num_layers: int = 2,
        width: int = 200,
        num_heads: int = 2,
        hidden: int = 200,
        dropout: float = 0.2,
        longest: int = 35,
    ) -> None:
        super().__init__()
        self.width = width
        self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(
            *(EncoderLayer(width, num_heads, hidden, dropout) for _ in range(num_layers))
        )
        self.decoder = nn.Linear(width, vocabulary)
        self.register_buffer("positions", sinusoids(longest, width), persistent=False)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return logits of each next word or, given the true words, the loss of each."""
        positions = cast(Tensor, self.positions)[: tokens.shape[1]]
        stream = self.embedding(tokens) * math.sqrt(self.width) + positions
        features = self.layers(self.dropout(stream))
        if targets is None:
            return cast(Tensor, self.decoder(features))
        losses = word_losses(
            features.flatten(0, 1), self.decoder.weight, self.decoder.bias, targets.flatten()
        )
        return losses.view_as(targets)


class EncoderLayer(nn.Module):
    """Attention to the past and a perceptron, each added to the stream, without layer norm."""

    def __init__(self, width: int, num_heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.widen = nn.Linear(width, hidden)
        self.shrink = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)
        nn.init.xavier_uniform_(self.query_key_value.weight)
        nn.init.zeros_(self.query_key_value.bias)
        nn.init.zeros_(self.project.bias)

    def forward(self, stream: Tensor) -> Tensor:
        """Return the stream after this layer."""
        query, key, value = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for part in self.query_key_value(stream).chunk(3, dim=-1)
        )
        length = stream.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=stream.device).triu(1)
        mixed = attend(query, key, value, future, self.dropout)
        stream = stream + self.dropout(self.project(mixed))
        hidden = self.dropout(relu(self.widen(stream)))
        return stream + cast(Tensor, self.dropout(self.shrink(hidden)))
