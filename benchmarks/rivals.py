"""All rivals. pytorch_optimizer 4.1 has no Madam, so `madam` is the one of ``nero.baselines``."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from nero import baselines
from nero.bench import RIVALS as CORE
from nero.bench import Rival, Stepper
from nero.bench.rivals import ADAM_LR, SGD_LR, optimizer_rival


def hidden_matrices(model: nn.Module) -> list[Tensor]:
    """Return what Muon is meant for: weights of Linear layers, but no embedding and no head."""
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    return [
        module.weight
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
        and name.rpartition(".")[2] != "head"
        and id(module.weight) not in embeddings
    ]


def _muon(model: nn.Module) -> Stepper:
    hidden = hidden_matrices(model)
    is_hidden = {id(p) for p in hidden}
    others = [p for p in model.parameters() if id(p) not in is_hidden]
    optimizers: list[torch.optim.Optimizer] = []
    if hidden:
        optimizers.append(torch.optim.Muon(hidden, lr=ADAM_LR))
    if others:
        optimizers.append(torch.optim.AdamW(others, lr=ADAM_LR, fused=True))

    def step() -> None:
        for optimizer in optimizers:
            optimizer.step()

    return Stepper(step, tuple(optimizers))


def _bare(model: nn.Module) -> Stepper:
    from benchmarks.bare import bare  # numba takes half a second to import

    return bare(model)


def _peer(name: str, **options: float) -> Rival:
    def make(model: nn.Module) -> torch.optim.Optimizer:
        import pytorch_optimizer

        optimizer: torch.optim.Optimizer = getattr(pytorch_optimizer, name)(
            model.parameters(), **options
        )
        return optimizer

    # LAMB holds an update of the whole model at once, Nero some copies of one tensor.
    state_copies, temporary_copies = (2.0, 1.5) if name == "Lamb" else (0.0, 0.5)
    return optimizer_rival(make, state_copies=state_copies, temporary_copies=temporary_copies)


RIVALS: Mapping[str, Rival] = {
    "bare": Rival(_bare, dtypes=(torch.float32,)),
    "sgd-fused": CORE["sgd-fused"],
    "sgd-foreach": optimizer_rival(
        lambda model: torch.optim.SGD(model.parameters(), lr=SGD_LR, foreach=True)
    ),
    "adamw-fused": CORE["adamw-fused"],
    "adamw-foreach": optimizer_rival(
        lambda model: torch.optim.AdamW(model.parameters(), lr=ADAM_LR, foreach=True),
        state_copies=2,
        temporary_copies=2,
    ),
    # Its step on GPT-2 124M already takes seconds on two cores. What is no hidden matrix goes to AdamW.
    "muon": Rival(_muon, state_copies=2, temporary_copies=0.5, max_parameters=130e6),
    "pytorch_optimizer-nero": _peer("Nero", lr=0.01),
    "pytorch_optimizer-lamb": _peer("Lamb", lr=0.05),
    "madam": optimizer_rival(
        lambda model: baselines.Madam(model), state_copies=2, temporary_copies=0.5
    ),
    "nero": CORE["nero"],
    "nero-plain": CORE["nero-plain"],
}
