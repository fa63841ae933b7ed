"""Who competes: each rival builds its optimiser on a model that all of them share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nero.backends import why_not_fused
from nero.optim import Nero

# Ratios are given to these, where they take part.
REFERENCES = ("sgd-fused", "adamw-fused", "bare")

# Rates large enough to move every bfloat16 weight of the workload at every step, so that a rival that
# leaves weights alone is noticed, and small enough for a hundred steps along one gradient.
SGD_LR, ADAM_LR = 0.1, 1e-3


@dataclass(frozen=True)
class Stepper:
    """A built rival: its whole step as one call, and the optimisers whose state it keeps."""

    step: Callable[[], object]
    optimizers: tuple[Optimizer, ...] = ()

    def state_bytes(self) -> int:
        """Return the bytes of all state tensors."""
        return sum(
            value.numel() * value.element_size()
            for optimizer in self.optimizers
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, Tensor)
        )


@dataclass(frozen=True)
class Rival:
    """How to build a rival, and the memory to set aside for it, in copies of the parameters."""

    build: Callable[[nn.Module], Stepper]
    state_copies: float = 0.0
    temporary_copies: float = 0.0
    max_parameters: float = float("inf")
    """Left out of larger models, because one step takes too long."""
    dtypes: tuple[torch.dtype, ...] | None = None
    """What it can step; ``None`` for everything."""
    why_not: Callable[[str], str | None] = lambda _: None
    """Why it does not compete on a device, such as ``"cuda"``; ``None`` if it does."""


def optimizer_rival(
    make: Callable[[nn.Module], Optimizer],
    *,
    state_copies: float = 0.0,
    temporary_copies: float = 0.0,
) -> Rival:
    """Return the rival that is one torch optimiser.

    Example:
        >>> from nero.bench.rivals import optimizer_rival
        >>> model = nn.Linear(2, 2)
        >>> rival = optimizer_rival(lambda model: torch.optim.SGD(model.parameters()))
        >>> rival.build(model).state_bytes()
        0
    """

    def build(model: nn.Module) -> Stepper:
        optimizer = make(model)
        return Stepper(optimizer.step, (optimizer,))

    return Rival(build, state_copies, temporary_copies)


def _why_no_kernel(device: str) -> str | None:
    if device == "cpu":
        return "on CPUs, nero is the fused one"
    return why_not_fused(torch.empty(1, device=device))


RIVALS: Mapping[str, Rival] = {
    "sgd-fused": optimizer_rival(
        lambda model: torch.optim.SGD(model.parameters(), lr=SGD_LR, fused=True)
    ),
    "adamw-fused": optimizer_rival(
        lambda model: torch.optim.AdamW(model.parameters(), lr=ADAM_LR, fused=True),
        state_copies=2,
    ),
    "nero": optimizer_rival(lambda model: Nero(model)),
    "nero-fused": replace(
        optimizer_rival(lambda model: Nero(model, fused=True)), why_not=_why_no_kernel
    ),
    "nero-plain": optimizer_rival(lambda model: Nero(model, fused=False), temporary_copies=0.5),
}
