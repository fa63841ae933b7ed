"""Models to step: what counts is the shapes of their parameters, and that their layouts are found.

Only `GPT` has a forward pass, because only it is trained (``benchmarks/training_share.py``).
"""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention


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
        self.blocks = nn.Sequential(
            *(Block(width, num_heads, is_causal=True) for _ in range(num_layers))
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (batch, length) to logits (batch, length, vocabulary)."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


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
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(num_layers - 1)))
    model.add_module("head", nn.Linear(width, num_classes, bias=False))
    return model


def _conv_norm(in_width: int, out_width: int, kernel: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_width, out_width, kernel, bias=False), nn.BatchNorm2d(out_width)
    )


# The tiny ones are for tests, and to see that a command line is right before it runs for an hour.
MODELS: Mapping[str, Callable[[], nn.Module]] = {
    "gpt2-124m": partial(GPT, width=768, num_layers=12, num_heads=12),
    "gpt2-350m": partial(GPT, width=1024, num_layers=24, num_heads=16),
    "resnet50": partial(resnet, width=64, num_blocks=(3, 4, 6, 3), num_classes=1000),
    "mlp-100": partial(mlp, width=784, num_layers=100),
    "gpt-small": partial(GPT, width=384, num_layers=6, num_heads=6, vocabulary=8192, context=256),
    "gpt-tiny": partial(GPT, width=32, num_layers=2, num_heads=2, vocabulary=101, context=16),
    "resnet-tiny": partial(resnet, width=4, num_blocks=(1, 1), num_classes=10),
    "mlp-tiny": partial(mlp, width=16, num_layers=3),
}
