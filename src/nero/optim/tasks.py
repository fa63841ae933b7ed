"""From a parameter with its group and state to the task that a backend receives."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from nero.backends import NeroOptions, NeroTask
from nero.functional import UNCONSTRAINED, Sphere, as_constraint
from nero.layout import Layout, layout_from_options
from nero.layout.spec import as_dims
from nero.optim.base import Group, Work, scalar


def tasks_of(work: Sequence[Work]) -> list[NeroTask]:
    """Return the tasks of one step."""
    groups = {id(item.group): item.group for item in work}
    options = {key: options_of(group) for key, group in groups.items()}
    return [task_of(item, options[id(item.group)]) for item in work]


def task_of(work: Work, options: NeroOptions) -> NeroTask:
    """Return the task of one parameter, viewed so that its fan-in dims apply."""
    param, grad, state = work.param, work.grad, work.state
    average, radius = state["exp_avg_norm"], None
    neurons = neurons_of(work.group, work.shape, options.constraint)
    if neurons.constraint.radius == "initial":  # it may have been another until now
        radius = _radius(work)
    if neurons.layout.num_groups > 1:
        view = neurons.layout.view
        param, grad, average = view(param), view(grad), view(average)
        radius = None if radius is None else view(radius)
    return NeroTask(
        weight=param,
        grad=grad,
        avg_norm=average,
        step=state["step"],
        num_skipped=state["num_skipped"],
        scale=state.get("scale"),
        radius=radius,
        fan_in_dims=neurons.fan_in_dims,
        constraint=neurons.constraint,
        options=options,
        stream=work.position,
    )


def _radius(work: Work) -> Tensor:
    if "radius" not in work.state:
        raise ValueError(
            f'{work.name}: its constraint has become "initial", but what its norms were is known only to '
            "an optimizer that is built with that constraint"
        )
    return work.state["radius"]


def options_of(group: Group) -> NeroOptions:
    """Return the options of a group that an update needs."""
    return NeroOptions(
        lr=scalar(group["lr"]),
        beta=group["beta"],
        constraint=as_constraint(group["constraint"]),
        bias_scale=group["bias_scale"],
        gain_penalty=group["gain_penalty"] if group["role"] == "gain" else 0.0,
        maximize=group["maximize"],
        nonfinite=group["nonfinite"],
        stochastic_rounding=group["stochastic_rounding"],
        seed=group["seed"],
    )


class Neurons(NamedTuple):
    """What a step needs to know of a parameter's shape."""

    layout: Layout
    fan_in_dims: tuple[int, ...]
    constraint: Sphere


def neurons_of(group: Group, shape: torch.Size, constraint: Sphere) -> Neurons:
    """Return the neurons of a parameter; found once for every kind of it."""
    key = (
        group["role"],
        as_dims(group["neuron_dims"]),
        group["num_groups"],
        shape,
        constraint,
    )
    # A compiler traces through the cache, and complains of it.
    return _find_neurons.__wrapped__(*key) if torch.compiler.is_compiling() else _find_neurons(*key)


@lru_cache(maxsize=4096)
def _find_neurons(
    role: str | None,
    neuron_dims: tuple[int, ...] | None,
    num_groups: int,
    shape: torch.Size,
    constraint: Sphere,
) -> Neurons:
    options = {"role": role, "neuron_dims": neuron_dims, "num_groups": num_groups}
    layout = layout_from_options(options, shape)
    if layout.is_elementwise(shape):
        return Neurons(Layout("other"), (), UNCONSTRAINED)
    return Neurons(layout, layout.fan_in_dims(shape), constraint.for_fan_in(layout.fan_in(shape)))
