"""Parameters with their neurons, of a model or an optimizer, as diagnostics and theory hold them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nero.core.neurons import LAYOUT_KEYS, Neurons, layout_from_shape, neurons_from_options
from nero.core.sharding import is_sharded, to_local
from nero.core.sphere import BALANCED, UNCONSTRAINED, Sphere, as_constraint
from nero.layout import Overrides, infer_layouts
from nero.layout.groups import resolve
from nero.optim import Balanced, Nero
from nero.optim.base import RelativeOptimizer
from nero.optim.checkpoint import INITIAL_NORMS


@dataclass(frozen=True, eq=False)
class NamedNeurons:
    """A parameter, its name, its neurons, and where they should live."""

    name: str
    param: Tensor
    neurons: Neurons
    constraint: Sphere
    """As given."""
    group: Mapping[str, Any] = field(default_factory=dict)
    """The options of its param group."""
    index: int = 0
    """Position in its group."""

    @property
    def sphere(self) -> Sphere:
        """What neurons of this fan-in can obey of the constraint."""
        return self.constraint.for_fan_in(self.neurons.fan_in)

    @property
    def lr(self) -> float:
        """The learning rate of its group, or NaN; waits for the device if that is a tensor."""
        lr = self.group.get("lr")  # some optimizers find their own, and have None here
        return math.nan if lr is None else float(lr)


def neurons_of_model(
    model: nn.Module, *, constraint: Sphere | str = BALANCED, overrides: Overrides = ()
) -> list[NamedNeurons]:
    """Return all parameters of a model in their order, elementwise ones included."""
    return [
        NamedNeurons(
            found.name,
            found.param,
            found.layout.at(found.param.shape),
            as_constraint(options.get("constraint", constraint)),
        )
        for found, _, options in resolve(model, overrides)
    ]


def innermost(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer whose hooks run: trainers wrap the one that they are given."""
    while not isinstance(optimizer, Balanced):
        wrapped = getattr(optimizer, "optimizer", None)
        if not isinstance(wrapped, Optimizer):
            break
        optimizer = wrapped
    return optimizer


def watched_params(
    optimizer: Optimizer, model: nn.Module | None = None, constraint: Sphere | str | None = None
) -> list[NamedNeurons]:
    """Find the parameters that have neurons and can be trained, in the order of ``model`` if it is given.

    Layouts are those of the optimizer, where it has any; then those of the modules; then those that shapes
    suggest. Complex parameters are left out: they have other angles. The constraint is by default what the
    optimizer makes neurons obey.
    """
    by_module = {found.param: found for found in infer_layouts(model)} if model is not None else {}
    found = []
    for param, group, index, name in _members(optimizer):
        has_weights = param.numel() and not param.is_meta and param.is_floating_point()
        if not has_weights or not param.requires_grad:
            continue
        module = by_module.get(param)  # type: ignore[call-overload]
        if _has_layouts(optimizer, group):
            neurons = neurons_from_options(group, param.shape)
        else:
            layout = layout_from_shape(param.shape) if module is None else module.layout
            neurons = layout.at(param.shape)
        if neurons.is_elementwise:
            continue
        sphere = _constraint(optimizer, group) if constraint is None else constraint
        name = name if module is None else module.name
        if is_sharded(param):
            from nero.distributed import check_placements

            check_placements(param, neurons, f"`{name}`")  # type: ignore[arg-type]
        found.append(NamedNeurons(name, param, neurons, as_constraint(sphere), group, index))
    order = {param: index for index, param in enumerate(by_module)}
    return sorted(found, key=lambda each: order.get(each.param, len(order)))  # type: ignore[call-overload]


def target_norms(optimizer: Optimizer | None, each: NamedNeurons) -> Tensor | float | None:
    """Return the norm that neurons should have: a number, one per neuron of this rank, or ``None``."""
    if not isinstance(each.sphere.radius, str):
        return each.sphere.radius
    norms = None
    if isinstance(optimizer, Balanced):
        known = each.group.get(INITIAL_NORMS)
        norms = known[each.index] if known else None
    elif optimizer is not None:
        norms = optimizer.state.get(each.param, {}).get("radius")
    if norms is None:
        return None
    if is_sharded(norms) and each.neurons.num_groups == 1:
        # Torch replicates some of them. Keeping this rank's part communicates nothing.
        from nero.distributed import per_neuron

        mine = per_neuron(each.param, each.neurons, dtype=norms.dtype, device=norms.device)  # type: ignore[arg-type]
        norms = norms.redistribute(mine.device_mesh, mine.placements)
    return to_local(norms).flatten()


def skipped_counts(optimizer: Optimizer) -> list[tuple[NamedNeurons, Tensor]]:
    """Return how many updates Nero has skipped, per parameter; nothing, for another optimizer."""
    found = []
    for param, group, index, name in _members(optimizer) if isinstance(optimizer, Nero) else ():
        count = optimizer.state.get(param, {}).get("num_skipped")
        if count is not None:
            neurons = neurons_from_options(group, param.shape)
            constraint = as_constraint(group["constraint"])
            found.append((NamedNeurons(name, param, neurons, constraint, group, index), count))
    return found


def gradient_of(each: NamedNeurons) -> Tensor | None:
    """Return what this rank holds of the gradient."""
    grad = each.param.grad
    if grad is None:
        return None
    if is_sharded(each.param):
        from nero.distributed import local_pair

        return local_pair(each.param, grad, f"`{each.name}`")[1]
    return grad if grad.layout == torch.strided else grad.to_dense()


def _members(optimizer: Optimizer) -> Iterator[tuple[Tensor, dict[str, Any], int, str]]:
    for number, group in enumerate(optimizer.param_groups):
        names = group.get("param_names")
        for index, param in enumerate(group["params"]):
            name = f"groups.{number}.params.{index}" if names is None else names[index]
            yield param, group, index, name


def _has_layouts(optimizer: Optimizer, group: dict[str, Any]) -> bool:
    # Ours go by shape where a group says nothing: what they turn is what is watched.
    if isinstance(optimizer, Balanced | RelativeOptimizer):
        return True
    return any(group.get(key) is not None for key in LAYOUT_KEYS)


def _constraint(optimizer: Optimizer, group: dict[str, Any]) -> Any:
    if isinstance(optimizer, Balanced):
        return group.get("constraint", optimizer.constraint)
    return group["constraint"] if isinstance(optimizer, Nero) else UNCONSTRAINED
