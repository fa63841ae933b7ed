"""The shell that the baselines share: buffers, a rule, and the write-back."""

from abc import abstractmethod

import torch
from torch import Tensor

from nero.functional import working_dtype
from nero.functional.relative import LayerNorm, layer_norm
from nero.functional.sharding import is_sharded
from nero.optim.base import Group, RelativeOptimizer, State, Work, scalar
from nero.optim.shared import held_work


class Baseline(RelativeOptimizer):
    """An optimiser whose whole step is one pure function of `nero.functional.relative`."""

    @abstractmethod
    def _buffers(self, param: Tensor, group: Group) -> State:
        """Make the state that `_rule` reads, beside ``step``."""

    @abstractmethod
    def _rule(
        self,
        weight: Tensor,
        grad: Tensor,
        state: State,
        group: Group,
        step: Tensor,
        layer_norm: LayerNorm,
    ) -> tuple[Tensor, State]:
        """Compute the new weight and the changed buffers."""

    def _new_state(self, param: Tensor, group: Group) -> State:
        step = torch.zeros((), dtype=torch.int64, device=param.device)
        return {"step": step, **self._buffers(param, group)}

    def _update(self, work: list[Work]) -> None:
        if any(is_sharded(item.param) for item in work):
            self._update_shards(work)
            return
        for item in work:
            _write_(item, *self._computed(item, layer_norm))

    def _update_shards(self, work: list[Work]) -> None:
        """Work on what this rank holds, with norms that all ranks add up at once."""
        from nero.distributed import SharedNorms

        norms = SharedNorms()
        held = [held_work(item) for item in work]
        for item, mine in zip(work, held, strict=True):
            self._computed(mine, norms.asked_for(item.param))
        answer = norms.answers()
        for item in held:
            _write_(item, *self._computed(item, answer))

    def _computed(self, item: Work, layer_norm: LayerNorm) -> tuple[Tensor, State]:
        param, grad, state = item.param, item.grad, item.state
        group = {**item.group, "lr": scalar(item.group["lr"])}
        dtype = working_dtype(param.dtype)
        grad = -grad if group["maximize"] else grad
        step = state["step"] + 1
        weight, buffers = self._rule(
            param.to(dtype), grad.to(dtype), state, group, step, layer_norm
        )
        return weight, {"step": step, **buffers}


def zeros_for(param: Tensor) -> Tensor:
    """Return zeros in the shape of ``param``, in working precision."""
    dtype = working_dtype(param.dtype)
    return torch.zeros_like(param, dtype=dtype, requires_grad=False)


def _write_(item: Work, weight: Tensor, changed: State) -> None:
    # A step at lr = 0 changes nothing.
    lr = scalar(item.group["lr"])
    pairs = [(item.param, weight), *((item.state[key], value) for key, value in changed.items())]
    for target, value in pairs:
        if isinstance(lr, Tensor):
            target.copy_(torch.where(lr != 0, value.to(target.dtype), target))
        elif lr != 0:
            target.copy_(value)
