"""Project the neurons of parameters in place."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from nero.checks.params import check_has_params
from nero.core.arguments import check_real
from nero.core.held import Held
from nero.core.neurons import Neurons, neurons_from_options
from nero.core.sphere import BALANCED, Sphere, as_constraint
from nero.hold import hold
from nero.layout import Overrides
from nero.layout.given import Params, as_groups


def project_(
    params: Params, *, constraint: Sphere | str = BALANCED, overrides: Overrides = ()
) -> None:
    """Project every neuron of ``params`` onto ``constraint``, in place.

    [`Nero`][nero.Nero] does this when it is built. Call it yourself where something else moved the
    weights: after averaging them (an average of unit vectors is shorter than one), or on every rank
    before an optimizer that sees only some of the parameters.

    Args:
        params: a model, its parameters, or param groups. Frozen parameters are projected too,
            since averages are often frozen.
        constraint: where neurons live; a group's own ``constraint`` comes first. ``"initial"`` is an
            error, because nothing here knows what the norms were.
        overrides: as in [`param_groups`][nero.param_groups]; needs a model.

    Example:
        >>> layer = nn.Linear(100, 10)
        >>> nero.project_(layer)
        >>> torch.allclose(layer.weight.norm(dim=1), torch.ones(10))
        True
    """
    if isinstance(params, Tensor):
        raise TypeError(
            "project_ takes a model or several parameters: put a single one into a list"
        )
    for param, group in _each(as_groups(params, overrides)):
        check_real("each of params", param)
        if not param.is_meta:
            sphere = as_constraint(group.get("constraint", constraint))
            if sphere.radius == "initial":
                raise ValueError(
                    'constraint "initial" has no norm to project to here; give a radius, such as '
                    "Sphere(radius=1.0)"
                )
            project_param_(param, neurons_from_options(group, param.shape), sphere)


def project_param_(
    param: Tensor, neurons: Neurons, constraint: Sphere, radius: Tensor | None = None
) -> None:
    """Project one parameter in place; without fan-in, or without a radius to keep, it stays."""
    project_held_(hold(param, neurons), constraint.for_fan_in(neurons.fan_in), radius)


def project_held_(held: Held, constraint: Sphere, radius: Tensor | None = None) -> None:
    """Project a parameter in place, given the constraint at its fan-in."""
    if held.neurons.is_elementwise:
        return
    if constraint.radius == "initial" and radius is None:
        constraint = Sphere(None, constraint.centre)
    with torch.no_grad():
        held.project_(constraint, radius)


def _each(groups: Sequence[dict[str, Any]]) -> Iterator[tuple[Tensor, dict[str, Any]]]:
    for group in groups:
        check_has_params(group)
        for member in group["params"]:
            yield (member[1] if isinstance(member, tuple) else member), group
