"""What is compared: each competitor builds its optimisers on a model that all of them share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from nero.backends import why_not_fused
from nero.optim import Nero
from nero.tools.optimizers import Build, muon

# Ratios to these are given, where they take part.
REFERENCES = ("sgd-fused", "adamw-fused", "bare")

# Rates large enough to move every bfloat16 weight of the workload at every step, so that an optimiser that
# leaves weights alone is noticed, and small enough for a hundred steps along one gradient.
SGD_LR, ADAM_LR = 0.1, 1e-3


@dataclass(frozen=True)
class Competitor:
    """How to build the optimisers, and the memory to set aside for them, in copies of the parameters."""

    build: Build
    state_copies: float = 0.0
    temporary_copies: float = 0.0
    max_parameters: float = float("inf")
    """Left out of larger models, because one step takes too long."""
    dtypes: tuple[torch.dtype, ...] | None = None
    """What it can step; ``None`` for everything."""
    why_not: Callable[[str], str | None] = lambda _: None
    """Why it does not compete on a device, such as ``"cuda"``; ``None`` if it does."""


def _why_no_kernel(device: str) -> str | None:
    if device == "cpu":
        return "on CPUs, nero is the fused one"
    return why_not_fused(torch.empty(1, device=device))


def _why_no_muon(device: str) -> str | None:
    if device == "cpu":
        return "a step takes seconds on CPUs"
    return None if hasattr(torch.optim, "Muon") else f"torch {torch.__version__} has none"


COMPETITORS: Mapping[str, Competitor] = {
    "sgd-fused": Competitor(lambda m: [torch.optim.SGD(m.parameters(), SGD_LR, fused=True)]),
    "adamw-fused": Competitor(
        lambda m: [torch.optim.AdamW(m.parameters(), ADAM_LR, fused=True)], state_copies=2
    ),
    "sgd-momentum-fused": Competitor(
        lambda m: [torch.optim.SGD(m.parameters(), SGD_LR, momentum=0.9, fused=True)],
        state_copies=1,
        dtypes=(torch.float32,),  # torch's kernel spoils bfloat16 buffers
    ),
    "muon": Competitor(
        partial(muon, lr=ADAM_LR, fused=True),
        state_copies=2,
        temporary_copies=0.5,
        why_not=_why_no_muon,
    ),
    "nero": Competitor(lambda m: [Nero(m)]),
    "nero-rows": Competitor(
        lambda m: [Nero(m, preset="rows")], state_copies=1, dtypes=(torch.float32,)
    ),
    "nero-polar": Competitor(
        lambda m: [Nero(m, preset="polar")],
        state_copies=1,
        temporary_copies=1,  # factors of all hidden matrices at once
        dtypes=(torch.float32,),
        max_parameters=130e6,
    ),
    "nero-fused": Competitor(lambda m: [Nero(m, fused=True)], why_not=_why_no_kernel),
    "nero-plain": Competitor(lambda m: [Nero(m, fused=False)], temporary_copies=0.5),
}
