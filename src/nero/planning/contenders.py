"""The optimisers that are compared."""

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.optim import Optimizer

from nero.baselines import Lamb
from nero.optim import Nero
from nero.planning.shard import PlanError, blocks


def muon(model: nn.Module) -> list[Optimizer]:
    """Return torch's Muon for the matrices inside blocks that are no embeddings, AdamW for the rest."""
    if not hasattr(torch.optim, "Muon"):
        raise PlanError(f"torch {torch.__version__} has no Muon: leave it out of --optimizers")
    embedded = {m.weight for m in model.modules() if isinstance(m, nn.Embedding)}
    inside = {param for block in blocks(model) for param in block.parameters()} - embedded
    trained = [p for p in model.parameters() if p.requires_grad]
    hidden = [p for p in trained if p.ndim == 2 and p in inside]
    rest = [p for p in trained if p.ndim != 2 or p not in inside]
    optimizers: list[Optimizer] = [torch.optim.Muon(hidden)] if hidden else []
    return optimizers + ([torch.optim.AdamW(rest)] if rest else [])


CONTENDERS: Mapping[str, Callable[[nn.Module], list[Optimizer]]] = {
    "nero": lambda model: [Nero(model)],
    "adamw": lambda model: [torch.optim.AdamW(model.parameters())],
    "lamb": lambda model: [Lamb(model)],
    "muon": muon,
}
