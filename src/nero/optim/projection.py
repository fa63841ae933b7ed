"""Project the neurons of parameters in place."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from nero.core.arguments import check_real
from nero.core.neurons import Neurons, neurons_from_options
from nero.core.sharding import is_sharded, to_local
from nero.core.sphere import BALANCED, Sphere, as_constraint, project
from nero.layout import Overrides
from nero.optim.base import Params, as_groups
from nero.optim.checks import check_has_params

_BLOCK = 2**18  # elements: what is computed of them in float64 stays in a core's cache


def project_(
    params: Params, *, constraint: Sphere | str = BALANCED, overrides: Overrides = ()
) -> None:
    """Project every neuron of ``params`` onto ``constraint``, in place.

    [`Nero`][nero.Nero] does this when it is built. Call it yourself where something else moved the
    weights: after averaging them (an average of unit vectors is shorter than one), or on every rank
    before an optimiser that sees only some of the parameters.

    Args:
        params: a model, its parameters, or param groups. Frozen parameters too: averages often are.
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
                    'constraint "initial" names no norm to project to; give a radius, such as '
                    "Sphere(radius=1.0)"
                )
            project_param_(param, neurons_from_options(group, param.shape), sphere)


@torch.no_grad()
def project_param_(
    param: Tensor, neurons: Neurons, constraint: Sphere, radius: Tensor | None = None
) -> None:
    """Project one parameter in place; without fan-in, or without a radius to keep, it stays."""
    if neurons.is_elementwise:
        return
    constraint = constraint.for_fan_in(neurons.fan_in)
    if constraint.radius == "initial" and radius is None:
        constraint = Sphere(None, constraint.centre)
    if is_sharded(param) and not ranks_share(param, neurons):
        param, radius = to_local(param), None if radius is None else to_local(radius)
    dims = neurons.fan_in_dims
    for weight, radii in _blocks(neurons.view(param), radius, dims):
        projected = project(weight, fan_in_dims=dims, constraint=constraint, radius=radii)
        if is_sharded(weight):
            # Torch may have placed it otherwise, where there are more ranks than rows.
            projected = projected.redistribute(weight.device_mesh, weight.placements)  # type: ignore[attr-defined]
        weight.copy_(projected)


def _blocks(
    weight: Tensor, radius: Tensor | None, fan_in_dims: tuple[int, ...]
) -> list[tuple[Tensor, Tensor | None]]:
    """Return a weight and its radii a few neurons at a time, if they are on a CPU."""
    dim = next((d for d in range(weight.ndim) if d not in fan_in_dims), None)
    if dim is None or weight.device.type != "cpu" or is_sharded(weight) or not weight.numel():
        return [(weight, radius)]
    size = max(1, _BLOCK * weight.shape[dim] // weight.numel())
    parts = weight.split(size, dim)
    radii = [None] * len(parts) if radius is None else radius.split(size, dim)
    return list(zip(parts, radii, strict=True))


def ranks_share(param: Tensor, neurons: Neurons) -> bool:
    """Whether ranks hold parts of one neuron each, so that none can judge or project it alone."""
    if not is_sharded(param):
        return False
    from nero.distributed import fan_in_mesh_dims

    return bool(fan_in_mesh_dims(param, neurons))


def _each(groups: Sequence[dict[str, Any]]) -> Iterator[tuple[Tensor, dict[str, Any]]]:
    for group in groups:
        check_has_params(group)
        for member in group["params"]:
            yield (member[1] if isinstance(member, tuple) else member), group
