"""The models of ``nero bench``, and those that only a repository needs."""

from collections.abc import Callable, Mapping
from functools import partial

from torch import nn

from nero.bench import MODELS
from nero.bench.models import Block


def llama(*, width: int, num_layers: int, kv_width: int, hidden: int, vocabulary: int) -> nn.Module:
    """Return the parameters of a Llama-like decoder: RMS norms, grouped queries, gated MLP, no biases."""
    linear = partial(nn.Linear, bias=False)
    layers = [
        nn.ModuleDict(
            {
                "norm_1": nn.RMSNorm(width),
                "q": linear(width, width),
                "k": linear(width, kv_width),
                "v": linear(width, kv_width),
                "out": linear(width, width),
                "norm_2": nn.RMSNorm(width),
                "gate": linear(width, hidden),
                "up": linear(width, hidden),
                "down": linear(hidden, width),
            }
        )
        for _ in range(num_layers)
    ]
    return nn.ModuleDict(
        {
            "tokens": nn.Embedding(vocabulary, width),
            "layers": nn.ModuleList(layers),
            "norm": nn.RMSNorm(width),
            "head": linear(width, vocabulary),
        }
    )


def vit(
    *, width: int, num_layers: int, num_heads: int, patch: int, num_patches: int, num_classes: int
) -> nn.Module:
    """Return the parameters of a vision transformer (Dosovitskiy et al. 2021).

    Class token and positions are embeddings here, so that their layout is known.
    """
    blocks = (Block(width, num_heads, is_causal=False) for _ in range(num_layers))
    return nn.ModuleDict(
        {
            "patches": nn.Conv2d(3, width, patch, stride=patch),
            "class_token": nn.Embedding(1, width),
            "positions": nn.Embedding(num_patches + 1, width),
            "blocks": nn.Sequential(*blocks),
            "norm": nn.LayerNorm(width),
            "head": nn.Linear(width, num_classes),
        }
    )


SHAPES: Mapping[str, Callable[[], nn.Module]] = {
    **MODELS,
    # TinyLlama's shapes: 1.1 billion, which with AdamW's state fits into 24 GB.
    "llama-1b": partial(
        llama, width=2048, num_layers=22, kv_width=256, hidden=5632, vocabulary=32000
    ),
    "vit-b16": partial(
        vit, width=768, num_layers=12, num_heads=12, patch=16, num_patches=196, num_classes=1000
    ),
    "llama-tiny": partial(llama, width=32, num_layers=2, kv_width=16, hidden=48, vocabulary=101),
    "vit-tiny": partial(
        vit, width=32, num_layers=2, num_heads=2, patch=4, num_patches=9, num_classes=10
    ),
}
