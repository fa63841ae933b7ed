"""All optimisers that are timed. `madam` is that of ``nero.baselines``: pytorch_optimizer 4.1 has none."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import nn
from torch.optim import Optimizer

from nero import Nero, baselines
from nero.tools.bench.competitors import ADAM_LR, SGD_LR, Competitor
from nero.tools.bench.competitors import COMPETITORS as CORE


def _bare(model: nn.Module) -> list[Optimizer]:
    from benchmarks.bare import Bare  # numba takes half a second to import

    return [Bare(model.parameters())]


def _peer(name: str, lr: float, model: nn.Module) -> list[Optimizer]:
    import pytorch_optimizer

    return [getattr(pytorch_optimizer, name)(model.parameters(), lr=lr)]


COMPETITORS: Mapping[str, Competitor] = {
    "bare": Competitor(_bare, dtypes=(torch.float32,)),
    "sgd-fused": CORE["sgd-fused"],
    "sgd-foreach": Competitor(lambda m: [torch.optim.SGD(m.parameters(), SGD_LR, foreach=True)]),
    "adamw-fused": CORE["adamw-fused"],
    "adamw-foreach": Competitor(
        lambda m: [torch.optim.AdamW(m.parameters(), ADAM_LR, foreach=True)],
        state_copies=2,
        temporary_copies=2,
    ),
    # Its step on GPT-2 124M already takes seconds on two cores.
    "muon": replace(CORE["muon"], max_parameters=130e6, why_not=lambda _: None),
    # LAMB holds an update of the whole model at once, Nero some copies of one tensor.
    "pytorch_optimizer-nero": Competitor(partial(_peer, "Nero", 0.01), temporary_copies=0.5),
    "pytorch_optimizer-lamb": Competitor(
        partial(_peer, "Lamb", 0.05), state_copies=2, temporary_copies=1.5
    ),
    "madam": Competitor(lambda m: [baselines.Madam(m)], state_copies=2, temporary_copies=0.5),
    "sgd-momentum-fused": CORE["sgd-momentum-fused"],
    "nero": CORE["nero"],
    "nero-rows": CORE["nero-rows"],
    "nero-peak": Competitor(lambda m: [Nero(m, norm="peak")]),
    "nero-rows-rms": replace(
        CORE["nero-rows"], build=lambda m: [Nero(m, preset="rows", norm="rms", beta=0.999)]
    ),
    "nero-polar": CORE["nero-polar"],
    "nero-plain": CORE["nero-plain"],
}
