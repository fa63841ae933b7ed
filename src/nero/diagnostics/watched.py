"""Which parameters of an optimiser have neurons, what they are called, and where they should live."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nero.functional import UNCONSTRAINED, Sphere, as_constraint
from nero.core.sharding import is_sharded, to_local
from nero.layout import LAYOUT_KEYS, Layout, infer_layouts, layout_from_options, layout_from_shape
from nero.optim import Balanced, Nero
from nero.optim.base import RelativeOptimizer


@dataclass(frozen=True)
class Watched:
    """A parameter that has neurons."""

    name: str
    param: Tensor
    layout: Layout
    group: dict[str, Any]
    place: int
    """Position in its group."""
    constraint: Sphere
    """That its neurons can obey; none, if nobody holds them to one."""

    @property
    def lr(self) -> float:
        """The learning rate of its group, or NaN; waits for the device if that is a tensor."""
        lr = self.group.get("lr")  # some optimisers find their own, and have None here
        return math.nan if lr is None else float(lr)


def innermost(optimizer: Optimizer) -> Optimizer:
    """Return the optimiser whose hooks run: trainers wrap the one that they are given.

    Example:
        >>> from nero.diagnostics.watched import innermost
        >>> optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters())
        >>> innermost(optimizer) is optimizer
        True
    """
    while not isinstance(optimizer, Balanced):
        wrapped = getattr(optimizer, "optimizer", None)
        if not isinstance(wrapped, Optimizer):
            break
        optimizer = wrapped
    return optimizer


def watched_params(
    optimizer: Optimizer, model: nn.Module | None = None, constraint: Sphere | str | None = None
) -> list[Watched]:
    """Find the parameters that have neurons and can be trained, in the order of ``model`` if it is given.

    Complex ones are left out.

    The optimiser's own layouts come first, where it has any; then those of the modules; then shapes.

    Args:
        optimizer: any torch optimiser.
        model: the model that it trains, for names and layouts.
        constraint: what neurons should obey; ``None`` asks the optimiser.

    Example:
        >>> from nero.diagnostics.watched import watched_params
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))
        >>> [found.name for found in watched_params(torch.optim.Adam(model.parameters()), model)]
        ['0.weight', '2.weight']
    """
    by_module = {found.param: found for found in infer_layouts(model)} if model is not None else {}
    found = []
    for param, group, place, fallback_name in _members(optimizer.param_groups):
        if not param.requires_grad or param.is_meta or not param.numel():
            continue
        if not param.is_floating_point():  # complex numbers have other angles
            continue
        module = by_module.get(param)  # type: ignore[call-overload]
        if _has_layouts(optimizer, group):
            layout = layout_from_options(group, param.shape)
        else:
            layout = layout_from_shape(param.shape) if module is None else module.layout
        if layout.is_elementwise(param.shape):
            continue
        name = fallback_name if module is None else module.name
        if is_sharded(param):
            from nero.distributed import check_param

            check_param(param, layout, f"`{name}`")  # type: ignore[arg-type]
        sphere = _constraint(optimizer, group) if constraint is None else as_constraint(constraint)
        sphere = sphere.for_fan_in(layout.fan_in(param.shape))
        found.append(Watched(name, param, layout, group, place, sphere))
    order = {param: index for index, param in enumerate(by_module)}
    return sorted(found, key=lambda each: order.get(each.param, len(order)))  # type: ignore[call-overload]


def target_norms(optimizer: Optimizer, watched: Watched) -> Tensor | float | None:
    """Return the norm that neurons should have: a number, one for each on this rank, or ``None``."""
    if watched.constraint.radius != "initial":
        return watched.constraint.radius
    if isinstance(optimizer, Balanced):
        known = watched.group.get("initial_norms")
        norms = None if known is None else known[watched.place]
    else:
        norms = optimizer.state.get(watched.param, {}).get("radius")
    if norms is not None and is_sharded(norms) and watched.layout.num_groups == 1:
        # Torch leaves some whole on every rank. To keep the part that belongs here sends nothing.
        from nero.distributed import per_neuron

        mine = per_neuron(watched.param, watched.layout, dtype=norms.dtype, device=norms.device)  # type: ignore[arg-type]
        norms = norms.redistribute(mine.device_mesh, mine.placements)
    return None if norms is None else to_local(norms).flatten()


def skipped_counts(optimizer: Optimizer) -> list[tuple[Tensor, Layout, Tensor]]:
    """Return what Nero has counted of skipped neurons, by parameter; nothing, of another optimiser."""
    if not isinstance(optimizer, Nero):
        return []
    return [
        (param, layout_from_options(group, param.shape), optimizer.state[param]["num_skipped"])
        for param, group, _, _ in _members(optimizer.param_groups)
        if "num_skipped" in optimizer.state.get(param, {})
    ]


def gradient_of(watched: Watched) -> Tensor | None:
    """Return what this rank holds of the gradient."""
    grad = watched.param.grad
    if grad is None:
        return None
    if is_sharded(watched.param):
        from nero.distributed import local_work

        return local_work(watched.param, grad, f"`{watched.name}`")[1]
    return grad if grad.layout == torch.strided else grad.to_dense()


def _members(
    groups: Iterable[dict[str, Any]],
) -> Iterator[tuple[Tensor, dict[str, Any], int, str]]:
    for index, group in enumerate(groups):
        names = group.get("param_names")
        for place, param in enumerate(group["params"]):
            name = f"groups.{index}.params.{place}" if names is None else names[place]
            yield param, group, place, name


def _has_layouts(optimizer: Optimizer, group: dict[str, Any]) -> bool:
    # Ours go by shape where a group says nothing: what they turn is what is watched.
    if isinstance(optimizer, Balanced | RelativeOptimizer):
        return True
    return any(group.get(key) is not None for key in LAYOUT_KEYS)


def _constraint(optimizer: Optimizer, group: dict[str, Any]) -> Sphere:
    if isinstance(optimizer, Balanced):
        return as_constraint(group.get("constraint", optimizer.constraint))
    return as_constraint(group["constraint"]) if isinstance(optimizer, Nero) else UNCONSTRAINED
