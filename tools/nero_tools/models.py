"""Models for benchmarks and plans: only their parameter shapes and layouts matter.

Only `GPT` has a forward pass, because only it is trained (``bench/training_share.py``). A ``tp_plan``
says where tensor parallelism cuts the layers: by outputs (columns) or by inputs (rows).
"""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

_linear = partial(nn.Linear, bias=False)
COLUMN, ROW = "colwise", "rowwise"


class Block(nn.Module):
    """A pre-norm transformer block with biases, as in GPT-2 and ViT."""

    def __init__(self, width: int, num_heads: int, *, is_causal: bool) -> None:
        super().__init__()
        self.num_heads, self.is_causal = num_heads, is_causal
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, length, width) to the same shape."""
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.num_heads, -1)).unbind(-3)
        heads = scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=self.is_causal
        )
        x = x + self.out(heads.transpose(1, 2).flatten(-2))
        update: Tensor = self.down(gelu(self.up(self.norm_2(x))))
        return x + update


class GPT(nn.Module):
    """GPT-2 (Radford et al. 2019): learned positions, and a head tied to the embedding."""

    def __init__(
        self,
        *,
        width: int,
        num_layers: int,
        num_heads: int,
        vocabulary: int = 50257,
        context: int = 1024,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        blocks = (Block(width, num_heads, is_causal=True) for _ in range(num_layers))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(width)
        self.head = _linear(width, vocabulary)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (batch, length) to logits (batch, length, vocabulary)."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits

    def tp_plan(self) -> dict[str, str]:
        """Return Megatron's tensor-parallel plan; the head is tied to the embedding."""
        names = {"qkv": COLUMN, "out": ROW, "up": COLUMN, "down": ROW}
        return {"tokens": ROW, **{f"blocks.*.{name}": kind for name, kind in names.items()}}


class LlamaBlock(nn.Module):
    """A pre-norm block with grouped queries, without biases."""

    def __init__(self, width: int, kv_width: int, feed_forward: nn.Module) -> None:
        super().__init__()
        self.norm_1 = nn.RMSNorm(width)
        self.q = _linear(width, width)
        self.k = _linear(width, kv_width)
        self.v = _linear(width, kv_width)
        self.o = _linear(width, width)
        self.norm_2 = nn.RMSNorm(width)
        self.feed_forward = feed_forward


class Llama(nn.Module):
    """Llama 3 (Grattafiori et al. 2024), or with ``num_experts`` a mixture of experts like Mixtral."""

    def __init__(
        self,
        *,
        width: int,
        kv_width: int,
        hidden: int,
        num_layers: int,
        vocabulary: int = 128_256,
        num_experts: int = 0,
    ) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList()
        for _ in range(num_layers):
            make = partial(_experts, num_experts) if num_experts else _swiglu
            self.blocks.append(LlamaBlock(width, kv_width, make(width, hidden)))
        self.norm = nn.RMSNorm(width)
        self.head = _linear(width, vocabulary)

    def tp_plan(self) -> dict[str, str]:
        """Return the tensor-parallel plan; the router is replicated."""
        inner = "feed_forward.experts.*" if self.num_experts else "feed_forward"
        names = {"q": COLUMN, "k": COLUMN, "v": COLUMN, "o": ROW}
        names |= {f"{inner}.gate": COLUMN, f"{inner}.up": COLUMN, f"{inner}.down": ROW}
        blocks = {f"blocks.*.{name}": kind for name, kind in names.items()}
        return {"tokens": ROW, **blocks, "head": COLUMN}


def _swiglu(width: int, hidden: int) -> nn.Module:
    """Return a gated feed-forward layer (Shazeer 2020)."""
    sizes = {"gate": (width, hidden), "up": (width, hidden), "down": (hidden, width)}
    return nn.ModuleDict({name: _linear(*size) for name, size in sizes.items()})


def _experts(num_experts: int, width: int, hidden: int) -> nn.Module:
    """Return a mixture of gated feed-forward layers, and the router that picks some of them."""
    experts = nn.ModuleList(_swiglu(width, hidden) for _ in range(num_experts))
    return nn.ModuleDict({"router": _linear(width, num_experts), "experts": experts})


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


def resnet(*, width: int, num_blocks: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return the convolutions, norms and head of a bottleneck ResNet (He et al. 2016)."""
    layers = [_conv_norm(3, width, 7)]
    in_width = width
    for stage, num in enumerate(num_blocks):
        mid, out = width << stage, 4 * width << stage
        for block in range(num):
            layers += [_conv_norm(in_width, mid, 1), _conv_norm(mid, mid, 3)]
            layers += [_conv_norm(mid, out, 1)]
            if block == 0:
                layers += [_conv_norm(in_width, out, 1)]  # the shortcut
            in_width = out
    return nn.ModuleDict(
        {"features": nn.Sequential(*layers), "head": nn.Linear(in_width, num_classes)}
    )


def mlp(*, width: int, num_layers: int, num_classes: int = 10) -> nn.Module:
    """Return the very deep network of the paper: square layers of 784, as wide as its MNIST input."""
    model = nn.Sequential(*(_linear(width, width) for _ in range(num_layers - 1)))
    model.add_module("head", _linear(width, num_classes))
    return model


def _conv_norm(in_width: int, out_width: int, kernel: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_width, out_width, kernel, bias=False), nn.BatchNorm2d(out_width)
    )


_llama = partial(Llama, vocabulary=32_000)
_tiny_llama = partial(Llama, width=32, kv_width=16, hidden=48, vocabulary=64)
_tiny = {"width": 32, "num_layers": 2, "num_heads": 2}

# The tiny ones are for tests, and to see that a command line is right before it runs for minutes.
MODELS: Mapping[str, Callable[[], nn.Module]] = {
    "gpt2-124m": partial(GPT, width=768, num_layers=12, num_heads=12),
    "gpt2-350m": partial(GPT, width=1024, num_layers=24, num_heads=16),
    "resnet50": partial(resnet, width=64, num_blocks=(3, 4, 6, 3), num_classes=1000),
    "vit-b16": partial(
        vit, width=768, num_layers=12, num_heads=12, patch=16, num_patches=196, num_classes=1000
    ),
    "mlp-100": partial(mlp, width=784, num_layers=100),
    # TinyLlama's shapes: 1.1 billion, which with AdamW's state fits into 24 GB.
    "llama-1b": partial(_llama, width=2048, kv_width=256, hidden=5632, num_layers=22),
    "llama-8b": partial(Llama, width=4096, kv_width=1024, hidden=14336, num_layers=32),
    "llama-70b": partial(Llama, width=8192, kv_width=1024, hidden=28672, num_layers=80),
    "llama-405b": partial(Llama, width=16384, kv_width=1024, hidden=53248, num_layers=126),
    "moe-8x": partial(_llama, width=1024, kv_width=256, hidden=3584, num_layers=12, num_experts=8),
    "gpt-small": partial(GPT, width=384, num_layers=6, num_heads=6, vocabulary=8192, context=256),
    "gpt-tiny": partial(GPT, **_tiny, vocabulary=64, context=16),
    "llama-tiny": partial(_tiny_llama, num_layers=2),
    "moe-tiny": partial(_tiny_llama, num_layers=1, num_experts=4),
    "vit-tiny": partial(vit, **_tiny, patch=4, num_patches=9, num_classes=10),
    "resnet-tiny": partial(resnet, width=4, num_blocks=(1, 1), num_classes=10),
    "mlp-tiny": partial(mlp, width=16, num_layers=3),
}
