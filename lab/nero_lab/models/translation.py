"""The paper's large transformer: an encoder and a decoder of 121 tensors in all.

An encoder layer has four attention matrices without biases and a perceptron of two layers with biases:
8 tensors. A decoder layer attends twice: 12 tensors. Six of each make 120, and one matrix is the
embedding of both languages and the output layer too. LayerNorm has no gains and no biases.
"""

import math
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, relu

from nero_lab.models.attention import attend, sinusoids
from nero_lab.models.word_losses import word_losses


class Translator(nn.Module):
    """An encoder-decoder transformer with LayerNorm after each addition to the stream.

    Args:
        vocabulary: number of words of both languages together.
        padding: number of the word that fills up a batch.
        num_layers: number of encoder layers, and of decoder layers.
        width: length of the feature vector of a word.
        num_heads: number of attention heads.
        hidden: width of the hidden layer of each perceptron.
        dropout: on embeddings, attention weights and what is added to the stream.
        smoothing: how much of a target's probability is spread over the whole vocabulary.
        longest: longest sentence.
        embedding_norm: normalize what words and positions add up to, as the authors' code does, instead
            of multiplying embeddings by the root of the width.
    """

    outer_layers: ClassVar[tuple[str, ...]] = ("embedding",)
    """The first layer, which is the last one too; optimizers for hidden matrices leave it to another."""

    def __init__(
        self,
        *,
        vocabulary: int,
        padding: int,
        num_layers: int = 6,
        width: int = 512,
        num_heads: int = 8,
        hidden: int = 2048,
        dropout: float = 0.1,
        smoothing: float = 0.1,
        longest: int = 128,
        embedding_norm: bool = False,
    ) -> None:
        super().__init__()
        self.embedding_norm = embedding_norm
        self.padding, self.width, self.smoothing = padding, width, smoothing
        self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        sizes = (width, num_heads, hidden, dropout)
        self.encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(num_layers))
        self.decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(num_layers))
        # Tied as modules, so that optimizers see an output layer and not only an embedding.
        self.head = nn.Linear(width, vocabulary, bias=False, device="meta")
        self.head.weight = self.embedding.weight
        self.register_buffer("positions", sinusoids(longest, width), persistent=False)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(
        self, source: Tensor, target: Tensor, predicted: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Read a source sentence and the beginning of its translation, and predict what follows.

        Args:
            source: numbers of words, (sentence, position), filled up with padding.
            target: likewise, the translation without its last word.
            predicted: the translation without its first word.

        Returns:
            Logits of each next word. Given ``predicted``: the loss of each word that is no padding,
            without label smoothing and with it.
        """
        is_padding = (source == self.padding)[:, None, None, :]
        memory = self._embed(source)
        for layer in self.encoder:
            memory = layer(memory, is_padding)
        length = target.shape[1]
        # A sentence is padded at its end, which the mask of the future hides from all real words.
        future = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        features = self._embed(target)
        for layer in self.decoder:
            features = layer(features, future, memory, is_padding)
        if predicted is None:
            return cast(Tensor, self.head(features))
        is_word = predicted != self.padding
        return self._losses(features[is_word], predicted[is_word])

    def _embed(self, tokens: Tensor) -> Tensor:
        positions = cast(Tensor, self.positions)[: tokens.shape[1]]
        if self.embedding_norm:
            return layer_norm(self.dropout(self.embedding(tokens) + positions), (self.width,))
        stream = self.embedding(tokens) * math.sqrt(self.width) + positions
        return cast(Tensor, self.dropout(stream))

    def _losses(self, features: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        weight = self.head.weight
        plain = word_losses(features, weight, None, words)
        # Smoothing replaces a part of the target's logit by the mean logit: <x, w_target> by
        # <x, mean of w>. Written so, the logits are needed only once.
        difference = self.embedding(words) - weight.mean(dim=0)
        smooth = plain + self.smoothing * (features.float() * difference).sum(dim=1)
        return plain, smooth


class EncoderLayer(nn.Module):
    """Attention to the whole sentence, then a perceptron."""

    def __init__(self, width: int, num_heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, num_heads, dropout)
        self.perceptron = Perceptron(width, hidden)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, stream: Tensor, hidden: Tensor) -> Tensor:
        """Return the stream after this layer."""
        stream = self.norm(stream + self.dropout(self.attention(stream, stream, hidden)))
        return cast(Tensor, self.norm(stream + self.dropout(self.perceptron(stream))))


class DecoderLayer(nn.Module):
    """Attention to the past, attention to the encoded sentence, then a perceptron."""

    def __init__(self, width: int, num_heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, num_heads, dropout)
        self.cross_attention = Attention(width, num_heads, dropout)
        self.perceptron = Perceptron(width, hidden)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, stream: Tensor, future: Tensor, memory: Tensor, is_padding: Tensor) -> Tensor:
        """Return the stream after this layer."""
        stream = self.norm(stream + self.dropout(self.attention(stream, stream, future)))
        read = self.cross_attention(stream, memory, is_padding)
        stream = self.norm(stream + self.dropout(read))
        return cast(Tensor, self.norm(stream + self.dropout(self.perceptron(stream))))


class Attention(nn.Module):
    """Several heads that look from one sequence into another; four matrices without biases."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = nn.Dropout(dropout)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.project = nn.Linear(width, width, bias=False)

    def forward(self, stream: Tensor, memory: Tensor, hidden: Tensor) -> Tensor:
        """Return what is read from ``memory``, where ``hidden`` does not forbid it."""
        query, key, value = (
            features.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for features in (self.query(stream), self.key(memory), self.value(memory))
        )
        mixed = attend(query, key, value, hidden, self.dropout)
        return cast(Tensor, self.project(mixed))


class Perceptron(nn.Module):
    """Two layers with biases."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.widen = nn.Linear(width, hidden)
        self.shrink = nn.Linear(hidden, width)

    def forward(self, features: Tensor) -> Tensor:
        """Return new features."""
        return cast(Tensor, self.shrink(relu(self.widen(features))))
