"""The baselines' shared step: one pure function of a layer, with precision and sharding handled here."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from nero.core.precision import working_dtype
from nero.core.relative import LayerNorm, layer_norm
from nero.core.spec import StateSpec
from nero.core.update import Update
from nero.optim.rule import Group, Rule, State

COUNTER = {"step": StateSpec("scalar", torch.int64)}
"""The state that every baseline has."""


class LayerRule(Rule):
    """A rule whose step is one pure function of a layer, from `nero.core.relative`."""

    @abstractmethod
    def update(
        self, weight: Tensor, grad: Tensor, state: State, options: Group, norm: LayerNorm
    ) -> tuple[Tensor, State]:
        """Compute the new weight and the changed state.

        ``state["step"]`` already counts this step, and ``options`` includes ``lr``.
        """

    def step(self, updates: list[Update], groups: Sequence[Group]) -> None:
        """Update every layer that has a gradient."""
        if any(update.reduce_over for update in updates):
            self._step_shared(updates)
            return
        for update in updates:
            _write_(update, *self._computed(update, layer_norm), is_active=update.lr != 0)

    def _step_shared(self, updates: list[Update]) -> None:
        # Computed twice, so that the norms of all layers are reduced at once.
        from nero.distributed import SharedNorms

        shared = SharedNorms()
        for update in updates:
            self._computed(update, shared.recorder(update))
        norm = shared.reduced()
        for update in updates:
            shared.num_with_grad = float(update.has_grad)  # for rules without norms
            computed = self._computed(update, norm)
            is_active = (update.lr != 0) & (shared.num_with_grad > 0)
            _write_(update, *computed, is_active=is_active)

    def _computed(self, update: Update, norm: LayerNorm) -> tuple[Tensor, State]:
        group, dtype = {**update.hyper, "lr": update.lr}, working_dtype(update.weight.dtype)
        grad = -update.grad if group["maximize"] else update.grad
        state = {**update.state, "step": update.state["step"] + 1}
        weight, changed = self.update(update.weight.to(dtype), grad.to(dtype), state, group, norm)
        return weight, {"step": state["step"], **changed}


def _write_(update: Update, weight: Tensor, changed: State, *, is_active: bool | Tensor) -> None:
    # A step at lr = 0, or without a gradient on any rank, changes nothing.
    pairs = [(update.weight, weight), *((update.state[k], value) for k, value in changed.items())]
    for target, value in pairs:
        if isinstance(is_active, Tensor):
            target.copy_(torch.where(is_active, value.to(target.dtype), target))
        elif is_active:
            target.copy_(value)
