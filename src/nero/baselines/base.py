"""What the baselines share: state, precision, sharding, and a step that is one pure function."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from nero.core.neurons import Neurons
from nero.core.precision import working_dtype
from nero.core.relative import LayerNorm, layer_norm
from nero.core.spec import StateSpec
from nero.core.update import Update
from nero.optim.base import Group, RelativeOptimizer, State

COUNTER = {"step": StateSpec("scalar", torch.int64)}
"""The state that every baseline has."""


class Baseline(RelativeOptimizer):
    """An optimiser whose whole step is one pure function of `nero.core.relative`."""

    readers: ClassVar[Mapping[str, Callable[[str, Any], Any]]]
    """What checks each option, beside ``lr``."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.option_names = tuple(cls.readers)

    @abstractmethod
    def _rule(
        self, weight: Tensor, grad: Tensor, state: State, group: Group, norm: LayerNorm
    ) -> tuple[Tensor, State]:
        """Compute the new weight and the changed state; ``state["step"]`` counts this step already."""

    def _options_of(self, group: Group) -> Group:
        if not torch.compiler.is_compiling():
            for name, read in self.readers.items():
                read(name, group[name])
        # Values, not the group: it holds parameters, which must not live on in a cache, or be compared.
        return {k: v for k, v in group.items() if k not in ("params", "param_names", "lr")}

    def _reduce_over(self, param: Tensor, neurons: Neurons) -> tuple[Any, ...]:
        from nero.distributed import sharded_mesh_dims

        return sharded_mesh_dims(param)

    def _update(self, updates: list[Update]) -> None:
        if any(update.reduce_over for update in updates):
            self._update_shared(updates)
            return
        for update in updates:
            _write_(update, *self._computed(update, layer_norm), is_active=update.lr != 0)

    def _update_shared(self, updates: list[Update]) -> None:
        # Gone through twice, so that the norms of all layers are added up at once.
        from nero.distributed import SharedNorms

        shared = SharedNorms()
        for update in updates:
            self._computed(update, shared.asked_for(update))
        norm = shared.answers()
        for update in updates:
            shared.num_with_grad = float(update.has_grad)  # what a rule without norms goes by
            computed = self._computed(update, norm)
            is_active = (update.lr != 0) & (shared.num_with_grad > 0)
            _write_(update, *computed, is_active=is_active)

    def _computed(self, update: Update, norm: LayerNorm) -> tuple[Tensor, State]:
        group, dtype = {**update.hyper, "lr": update.lr}, working_dtype(update.weight.dtype)
        grad = -update.grad if group["maximize"] else update.grad
        state = {**update.state, "step": update.state["step"] + 1}
        weight, changed = self._rule(update.weight.to(dtype), grad.to(dtype), state, group, norm)
        return weight, {"step": state["step"], **changed}


def _write_(update: Update, weight: Tensor, changed: State, *, is_active: bool | Tensor) -> None:
    # A step at lr = 0, or without a gradient on any rank, changes nothing.
    pairs = [(update.weight, weight), *((update.state[k], value) for k, value in changed.items())]
    for target, value in pairs:
        if isinstance(is_active, Tensor):
            target.copy_(torch.where(is_active, value.to(target.dtype), target))
        elif is_active:
            target.copy_(value)
