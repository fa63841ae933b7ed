"""The networks of the gold record. Nothing runs them forward: gradients are synthetic.

Weights are uniform, not normal: uniform numbers are exact on every processor, so two machines start from
the same bits.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn


def seeded(model: nn.Module, *, seed: int = 0) -> nn.Module:
    """Redraw the weights of ``model`` in place; constants (gains, zero biases, zeroed layers) stay."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for param in model.parameters():
            drawn = uniform(param.shape, generator)
            if param.numel() == 1 or (param != param.flatten()[0]).any():
                param.copy_(drawn)
    return model


def uniform(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Draw float64 numbers from [-1, 1)."""
    return 2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1


def embedding_first() -> nn.Module:
    return nn.Sequential(
        nn.Embedding(7, 6), nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 5, bias=False)
    )


def embedding_later() -> nn.Module:
    return nn.ModuleDict(
        {
            "project": nn.Linear(6, 8),
            "norm": nn.LayerNorm(8),
            "positions": nn.Embedding(9, 8),
            "head": nn.Linear(8, 5),
        }
    )


def convolutions() -> nn.Module:
    return nn.ModuleDict(
        {
            "conv": nn.Conv2d(3, 6, 3),
            "norm": nn.BatchNorm2d(6),
            "channels_last": nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last),
            "depthwise": nn.Conv2d(4, 4, 3, groups=4),
            "up": nn.ConvTranspose2d(6, 8, 3, groups=2),
        }
    )


class EveryLayer(nn.Module):
    """Every layer kind that torch has and the package treats differently, and the awkward fan-ins."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8, padding_idx=0)
        self.linear = nn.Linear(8, 12)
        self.vision = convolutions()
        self.attention = nn.MultiheadAttention(8, 2, add_bias_kv=True)
        self.cross_attention = nn.MultiheadAttention(8, 2, kdim=6, vdim=5)
        self.recurrent = nn.LSTM(5, 4)
        self.layer_norm = nn.LayerNorm(8)
        self.slopes = nn.PReLU(3)
        self.temperature = nn.Parameter(torch.tensor(0.5))
        self.experts = nn.Parameter(torch.randn(3, 4, 5))
        self.zero = nn.Linear(6, 4)
        nn.init.zeros_(self.zero.weight)
        nn.init.zeros_(self.zero.bias)
        self.fan_in_1 = nn.Linear(1, 4)
        self.fan_in_2 = nn.Linear(2, 4)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight


def every_width() -> nn.Module:
    """Fan-ins at which kernels walk memory differently; give ``columns`` neuron_dims (1,)."""
    widths = {"short": 27, "middle": 100, "wide": 768, "odd": 777, "long": 8208}
    layers: dict[str, nn.Module] = {name: nn.Linear(n, 2) for name, n in widths.items()}
    return nn.ModuleDict({**layers, "columns": nn.Linear(40, 34, bias=False)})


def many_weights() -> nn.Module:
    """Enough weights for a fused kernel to share them out between threads."""
    return nn.Sequential(nn.Linear(384, 400), nn.Linear(400, 10))


def transformers_layer() -> nn.Module:
    """Return the layer of GPT-2, which stores (in, out)."""
    from transformers.pytorch_utils import Conv1D

    return nn.Sequential(Conv1D(9, 6), nn.LayerNorm(9), nn.Linear(9, 4))


class TinyGPT(nn.Module):
    """Embeddings before and after other neurons, and a head that is tied to the first."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(12, 8)
        self.attention = nn.MultiheadAttention(8, 2)
        self.norm = nn.LayerNorm(8)
        self.widen = nn.Linear(8, 16)
        self.narrow = nn.Linear(16, 8)
        self.positions = nn.Embedding(6, 8)
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.tokens.weight


class Sharded(nn.Module):
    """Sizes of which two ranks get uneven and empty shards; ``up`` has neurons that FSDP cuts."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.conv = nn.Conv1d(8, 6, 3)
        self.up = nn.ConvTranspose1d(6, 8, 3)
        self.norm = nn.LayerNorm(8)
        self.wide = nn.Linear(8, 12)
        self.narrow = nn.Linear(12, 8)
        self.experts = nn.Parameter(torch.randn(3, 8, 8))
        self.one = nn.Linear(8, 1)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight


NETWORKS: Mapping[str, Callable[[], nn.Module]] = {
    "embedding first": embedding_first,
    "embedding later": embedding_later,
    "convolutions": convolutions,
    "every layer": EveryLayer,
    "every width": every_width,
    "many weights": many_weights,
    "transformers layer": transformers_layer,
    "tiny GPT": TinyGPT,
    "sharded": Sharded,
}
