"""Sharded parameters: the step of neurons that ranks share, and what is left for each rank alone."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from nero.functional.sharding import is_sharded, local_of
from nero.layout import layout_from_options
from nero.optim.base import Group, State, Work
from nero.optim.tasks import options_of, task_of


def step_shared_(
    work: Sequence[Work], groups: Sequence[Group], states: Mapping[Tensor, State]
) -> list[Work]:
    """Step the neurons that this rank shares with others; return the other work, as what this rank holds.

    Every rank goes through the same shared parameters in the same order, with a gradient or without, so
    that they communicate as one.
    """
    from nero import distributed

    by_param = {item.param: item for item in work}
    crossings, rest = [], []
    for param, group, place in _members(groups):
        item = by_param.get(param)
        if not is_sharded(param):
            rest += [] if item is None else [item]
            continue
        layout = layout_from_options(group, param.shape)
        mesh_dims = distributed.fan_in_groups(param, layout)  # type: ignore[arg-type]
        if item is not None:
            mine = held_work(item)
        elif mesh_dims and param.requires_grad and states.get(param):
            weight = local_of(param)
            zeros = torch.zeros_like(weight)
            mine = Work(weight, zeros, _held(states[param]), group, place, 0, param.shape)
        else:
            continue
        if not mesh_dims:
            rest.append(mine)
            continue
        crossings.append(
            distributed.Crossing(
                task=task_of(mine, options_of(group)),
                has_grad=item is not None,
                fan_in=layout.fan_in(param.shape),
                mesh=param.device_mesh,  # type: ignore[attr-defined]
                mesh_dims=mesh_dims,
            )
        )
    if crossings:
        distributed.step_(crossings)
    return rest


def _members(groups: Sequence[Group]) -> list[tuple[Tensor, Group, int]]:
    return [(p, group, i) for group in groups for i, p in enumerate(group["params"])]


def held_work(work: Work) -> Work:
    """Return what this rank holds of a parameter, its gradient and its state."""
    from nero.distributed import local_work

    param, grad = local_work(work.param, work.grad, work.name)
    return work._replace(param=param, grad=grad, state=_held(work.state))


def _held(state: State) -> State:
    return {key: local_of(tensor) for key, tensor in state.items()}
