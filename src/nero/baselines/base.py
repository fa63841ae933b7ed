"""The shell that the baselines share: buffers, a rule, and the write-back."""

from abc import abstractmethod

import torch
from torch import Tensor

from nero.functional import working_dtype
from nero.optim.base import Group, RelativeOptimizer, State, Work, scalar


class Baseline(RelativeOptimizer):
    """An optimiser whose whole step is one pure function of `nero.functional.relative`."""

    @abstractmethod
    def _buffers(self, param: Tensor, group: Group) -> State:
        """Make the state that `_rule` reads, beside ``step``."""

    @abstractmethod
    def _rule(
        self, weight: Tensor, grad: Tensor, state: State, group: Group, step: Tensor
    ) -> tuple[Tensor, State]:
        """Compute the new weight and the changed buffers."""

    def _new_state(self, param: Tensor, group: Group) -> State:
        step = torch.zeros((), dtype=torch.int64, device=param.device)
        return {"step": step, **self._buffers(param, group)}

    def _update(self, work: list[Work]) -> None:
        for param, grad, state, group, *_ in work:
            group = {**group, "lr": scalar(group["lr"])}
            lr = group["lr"]
            dtype = working_dtype(param.dtype)
            grad = -grad if group["maximize"] else grad
            step = state["step"] + 1
            weight, buffers = self._rule(param.to(dtype), grad.to(dtype), state, group, step)
            _write_(param, weight, lr)
            _write_(state["step"], step, lr)
            for key, value in buffers.items():
                _write_(state[key], value, lr)


def zeros_for(param: Tensor) -> Tensor:
    """Return zeros in the shape of ``param``, in working precision."""
    dtype = working_dtype(param.dtype)
    return torch.zeros_like(param, dtype=dtype, requires_grad=False)


def _write_(target: Tensor, value: Tensor, lr: float | Tensor) -> None:
    # A step at lr = 0 changes nothing.
    if isinstance(lr, Tensor):
        value = torch.where(lr != 0, value.to(target.dtype), target)
    elif lr == 0:
        return
    target.copy_(value)
