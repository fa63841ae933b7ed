"""Models to plan for: the shapes of their parameters, and where tensor parallelism cuts them.

They have no forward pass: a step of an optimiser needs none.
"""

from collections.abc import Callable, Mapping
from functools import partial

from torch import nn

from nero.bench.models import GPT

COLUMN, ROW = "colwise", "rowwise"


class SwiGLU(nn.Module):
    """A gated feed-forward layer (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)


class Experts(nn.Module):
    """A mixture of gated feed-forward layers, and the router that picks some of them."""

    def __init__(self, width: int, hidden: int, num_experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, num_experts, bias=False)
        self.experts = nn.ModuleList(SwiGLU(width, hidden) for _ in range(num_experts))


class LlamaBlock(nn.Module):
    """A pre-norm block with grouped queries, without biases."""

    def __init__(self, width: int, kv_width: int, feed_forward: nn.Module) -> None:
        super().__init__()
        self.norm_1 = nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, kv_width, bias=False)
        self.v = nn.Linear(width, kv_width, bias=False)
        self.o = nn.Linear(width, width, bias=False)
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
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList()
        for _ in range(num_layers):
            mixed = Experts(width, hidden, num_experts) if num_experts else SwiGLU(width, hidden)
            self.blocks.append(LlamaBlock(width, kv_width, mixed))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def tp_plan(self) -> dict[str, str]:
        """Return how tensor parallelism cuts the layers: by outputs (columns) or by inputs (rows)."""
        inner = "feed_forward.experts.*" if self.has_experts else "feed_forward"
        names = {"q": COLUMN, "k": COLUMN, "v": COLUMN, "o": ROW}
        names |= {f"{inner}.gate": COLUMN, f"{inner}.up": COLUMN, f"{inner}.down": ROW}
        blocks = {f"blocks.*.{name}": kind for name, kind in names.items()}
        return {"tokens": ROW, **blocks, "head": COLUMN}

    @property
    def has_experts(self) -> bool:
        """Whether the feed-forward layers are mixtures."""
        return any(isinstance(module, Experts) for module in self.modules())


class PlannedGPT(GPT):
    """GPT-2, with the cuts of Megatron."""

    def tp_plan(self) -> dict[str, str]:
        """Return how tensor parallelism cuts the layers; the head is tied to the embedding."""
        names = {"qkv": COLUMN, "out": ROW, "up": COLUMN, "down": ROW}
        return {"tokens": ROW, **{f"blocks.*.{name}": kind for name, kind in names.items()}}


# The tiny ones are for tests, and to see that a command line is right before it runs for minutes.
MODELS: Mapping[str, Callable[[], nn.Module]] = {
    "llama-8b": partial(Llama, width=4096, kv_width=1024, hidden=14336, num_layers=32),
    "llama-70b": partial(Llama, width=8192, kv_width=1024, hidden=28672, num_layers=80),
    "llama-405b": partial(Llama, width=16384, kv_width=1024, hidden=53248, num_layers=126),
    "gpt2-124m": partial(PlannedGPT, width=768, num_layers=12, num_heads=12),
    "moe-8x": partial(
        Llama,
        width=1024,
        kv_width=256,
        hidden=3584,
        num_layers=12,
        vocabulary=32_000,
        num_experts=8,
    ),
    "llama-tiny": partial(Llama, width=32, kv_width=16, hidden=48, num_layers=2, vocabulary=64),
    "gpt-tiny": partial(PlannedGPT, width=32, num_layers=2, num_heads=2, vocabulary=64, context=16),
    "moe-tiny": partial(
        Llama, width=32, kv_width=16, hidden=48, num_layers=1, vocabulary=64, num_experts=4
    ),
}
