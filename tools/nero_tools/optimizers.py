"""Helpers for `bench` and `plan` that work with any optimizer."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from nero.cli.arguments import CommandError
from nero.core.sharding import to_local
from nero.layout import hidden_matrices

Build: TypeAlias = Callable[[nn.Module], list[Optimizer]]
"""Makes the optimizers that step a model together."""


def muon(model: nn.Module, *, lr: float = 1e-3, fused: bool | None = None) -> list[Optimizer]:
    """Return torch's Muon for the hidden matrices, and AdamW (``fused`` or not) for the rest.

    Raises:
        CommandError: if this version of torch has no Muon.
    """
    if not hasattr(torch.optim, "Muon"):
        raise CommandError(f"torch {torch.__version__} has no Muon: leave it out")
    hidden = hidden_matrices(model)
    is_hidden = set(hidden)
    rest = [p for p in model.parameters() if p.requires_grad and p not in is_hidden]
    optimizers: list[Optimizer] = [torch.optim.Muon(hidden, lr=lr)] if hidden else []
    return optimizers + ([torch.optim.AdamW(rest, lr=lr, fused=fused)] if rest else [])


def state_bytes(optimizers: Iterable[Optimizer]) -> int:
    """Return how many bytes of state this rank holds."""
    return num_bytes([list(optimizer.state.values()) for optimizer in optimizers])


def num_bytes(tree: Any) -> int:
    """Return the bytes that this rank holds of all tensors in nested lists, tuples and dicts."""
    return sum(to_local(leaf).nbytes for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def step_all(optimizers: Sequence[Optimizer]) -> Callable[[], object]:
    """Return one call that steps every optimizer; a single optimizer's own ``step``, without overhead."""
    if len(optimizers) == 1:
        return optimizers[0].step
    return lambda: [optimizer.step() for optimizer in optimizers]
