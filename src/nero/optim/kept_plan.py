"""A step that is worked out once, and kept while nothing but gradients and learning rates change."""

from collections.abc import Sequence
from operator import itemgetter

from torch import Tensor

from nero.backends import cpu, is_planning
from nero.optim.base import Group, Work
from nero.optim.tasks import tasks_of

# The options that a plan depends on.
_planned_options = itemgetter(
    *("role", "neuron_dims", "num_groups", "beta", "constraint", "bias_scale", "gain_penalty"),
    *("maximize", "nonfinite", "stochastic_rounding", "seed", "fused"),
)


class KeptPlan:
    """The plan of an optimiser's last step, and everything that it rests on."""

    def __init__(self) -> None:
        self.plan: cpu.Plan | None = None
        self._signature: object = None

    def step_(self, work: Sequence[Work], groups: Sequence[Group]) -> bool:
        """Take a step by a plan, this one or a new one; ``False`` where none can be made."""
        if not all(is_planning(fused=choice) for choice in {group["fused"] for group in groups}):
            return False
        if not all(cpu.is_plannable(item.param) for item in work):
            return False
        signature = [_planned_options(group) for group in groups], [_places(item) for item in work]
        if self.plan is None or signature != self._signature:
            self.plan, self._signature = cpu.Plan(tasks_of(work)), signature
        rates = {id(group): float(group["lr"]) for group in groups}
        self.plan.step_([item.grad for item in work], [rates[id(item.group)] for item in work])
        return True


def _places(work: Work) -> tuple[object, ...]:
    """Return what a plan rests on of a parameter: where it, its gradient and its state lie, and how."""
    param, grad = work.param, work.grad
    return (
        work.position,
        param.data_ptr(),
        param.dtype,
        param.shape,
        param.stride(),
        grad.dtype,
        grad.stride(),
        *map(Tensor.data_ptr, work.state.values()),
    )
