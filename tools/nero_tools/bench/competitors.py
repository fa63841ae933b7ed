"""What is compared: each competitor builds its optimizers on a model that all of them share.

`madam` is that of ``nero.baselines``: pytorch_optimizer 4.1 has none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn
from torch.optim import Optimizer

from nero import baselines
from nero.backends import why_not_fused
from nero.optim import Nero
from nero_tools.optimizers import Build, muon

# Ratios to these are given, where they take part.
REFERENCES = ("sgd-fused", "adamw-fused", "bare")

# Rates large enough to move every bfloat16 weight of the workload at every step, so that an optimizer that
# leaves weights alone is noticed, and small enough for a hundred steps along one gradient.
SGD_LR, ADAM_LR = 0.1, 1e-3


@dataclass(frozen=True)
class Competitor:
    """How to build the optimizers, and the memory to set aside for them, in copies of the parameters."""

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
        return "a step takes seconds on CPUs; python -m nero_tools.bench.step_time times it"
    return None if hasattr(torch.optim, "Muon") else f"torch {torch.__version__} has none"


def _bare(model: nn.Module) -> list[Optimizer]:
    from nero_tools.bench.bare import Bare  # numba takes half a second to import

    return [Bare(model.parameters())]


def _peer(name: str, lr: float, model: nn.Module) -> list[Optimizer]:
    import pytorch_optimizer

    return [getattr(pytorch_optimizer, name)(model.parameters(), lr=lr)]


_rows = partial(Competitor, state_copies=1, dtypes=(torch.float32,))

COMPETITORS: Mapping[str, Competitor] = {
    "bare": Competitor(_bare, dtypes=(torch.float32,)),
    "sgd-fused": Competitor(lambda m: [torch.optim.SGD(m.parameters(), SGD_LR, fused=True)]),
    "sgd-foreach": Competitor(lambda m: [torch.optim.SGD(m.parameters(), SGD_LR, foreach=True)]),
    "adamw-fused": Competitor(
        lambda m: [torch.optim.AdamW(m.parameters(), ADAM_LR, fused=True)], state_copies=2
    ),
    "adamw-foreach": Competitor(
        lambda m: [torch.optim.AdamW(m.parameters(), ADAM_LR, foreach=True)],
        state_copies=2,
        temporary_copies=2,
    ),
    "muon": Competitor(
        partial(muon, lr=ADAM_LR, fused=True),
        state_copies=2,
        temporary_copies=0.5,
        max_parameters=130e6,  # a step of GPT-2 124M already takes seconds on two cores
    ),
    # LAMB holds an update of the whole model at once, Nero some copies of one tensor.
    "pytorch_optimizer-nero": Competitor(partial(_peer, "Nero", 0.01), temporary_copies=0.5),
    "pytorch_optimizer-lamb": Competitor(
        partial(_peer, "Lamb", 0.05), state_copies=2, temporary_copies=1.5
    ),
    "madam": Competitor(lambda m: [baselines.Madam(m)], state_copies=2, temporary_copies=0.5),
    "sgd-momentum-fused": Competitor(
        lambda m: [torch.optim.SGD(m.parameters(), SGD_LR, momentum=0.9, fused=True)],
        state_copies=1,
        dtypes=(torch.float32,),  # torch's kernel spoils bfloat16 buffers
    ),
    "nero": Competitor(lambda m: [Nero(m)]),
    "nero-rows": _rows(lambda m: [Nero(m, preset="rows")]),
    "nero-peak": Competitor(lambda m: [Nero(m, norm="peak")]),
    "nero-rows-rms": _rows(lambda m: [Nero(m, preset="rows", norm="rms", beta=0.999)]),
    "nero-polar": Competitor(
        lambda m: [Nero(m, preset="polar")],
        state_copies=1,
        temporary_copies=1,  # factors of all hidden matrices at once
        dtypes=(torch.float32,),
        max_parameters=130e6,
    ),
    "nero-plain": Competitor(lambda m: [Nero(m, fused=False)], temporary_copies=0.5),
}
"""All that ``python -m nero_tools.bench.step_time`` measures."""

QUICK: Mapping[str, Competitor] = {
    "sgd-fused": COMPETITORS["sgd-fused"],
    "adamw-fused": COMPETITORS["adamw-fused"],
    "sgd-momentum-fused": COMPETITORS["sgd-momentum-fused"],
    "muon": replace(COMPETITORS["muon"], max_parameters=float("inf"), why_not=_why_no_muon),
    "nero": COMPETITORS["nero"],
    "nero-rows": COMPETITORS["nero-rows"],
    "nero-polar": COMPETITORS["nero-polar"],
    "nero-fused": Competitor(lambda m: [Nero(m, fused=True)], why_not=_why_no_kernel),
    "nero-plain": COMPETITORS["nero-plain"],
}
"""Those of ``nero bench``: on GPUs the kernel and Muon, too, and nothing that takes minutes on CPUs."""
