"""Parameters with their neurons, from a model or an optimizer, for diagnostics and theory."""

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
    """A parameter, its name, its neurons and their constraint."""

    name: str
    param: Tensor
    neurons: Neurons
    constraint: Sphere
    """As given by the user."""
    group: Mapping[str, Any] = field(default_factory=dict)
    """Its param group's options."""
    index: int = 0
    """Position in its group."""
    is_table: bool = False
    """Whether neurons are rows of an embedding, most of which a batch may not use."""

    @property
    def sphere(self) -> Sphere:
        """The part of the constraint that neurons of this fan-in can obey."""
        return self.constraint.for_fan_in(self.neurons.fan_in)

    @property
    def lr(self) -> float:
        """Its group's learning rate, or NaN; waits for the device if that is a tensor."""
        lr = self.group.get("lr")  # None for optimizers that choose their own
        return math.nan if lr is None else float(lr)


def neurons_of_model(
    model: nn.Module, *, constraint: Sphere | str = BALANCED, overrides: Overrides = ()
) -> list[NamedNeurons]:
    """Return all parameters of a model in order, including elementwise ones."""
    return [
        NamedNeurons(
            named.name,
            named.param,
            named.layout.at(named.param.shape),
            as_constraint(options.get("constraint", constraint)),
        )
        for named, _, options in resolve(model, overrides)
    ]


def innermost(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer whose hooks run; trainers may wrap it."""
    while not isinstance(optimizer, Balanced):
        wrapped = getattr(optimizer, "optimizer", None)
        if not isinstance(wrapped, Optimizer):
            break
        optimizer = wrapped
    return optimizer


def watched_params(
    optimizer: Optimizer, model: nn.Module | None = None, constraint: Sphere | str | None = None
) -> list[NamedNeurons]:
    """Return the trainable parameters with neurons, in the order of ``model`` if it is given.

    Layouts come from the optimizer, else from modules, else from shapes. Complex parameters
    are left out, since their angles mean something else. The default constraint is the optimizer's own.
    """
    by_module = {named.param: named for named in infer_layouts(model)} if model is not None else {}
    layers = []
    for param, group, index, name in _members(optimizer):
        has_weights = param.numel() and not param.is_meta and param.is_floating_point()
        if not has_weights or not param.requires_grad:
            continue
        module = by_module.get(param)  # type: ignore[call-overload]
        if _has_layouts(optimizer, group):
            neurons, role = neurons_from_options(group, param.shape), group.get("role")
        else:
            layout = layout_from_shape(param.shape) if module is None else module.layout
            neurons, role = layout.at(param.shape), layout.role
        if neurons.is_elementwise:
            continue
        sphere = _constraint(optimizer, group) if constraint is None else constraint
        name = name if module is None else module.name
        if is_sharded(param):
            from nero.distributed import check_placements

            check_placements(param, neurons, f"`{name}`")  # type: ignore[arg-type]
        layers.append(
            NamedNeurons(
                *(name, param, neurons, as_constraint(sphere), group, index),
                is_table=role == "embedding",
            )
        )
    order = {param: index for index, param in enumerate(by_module)}
    return sorted(layers, key=lambda layer: order.get(layer.param, len(order)))  # type: ignore[call-overload]


def target_norms(optimizer: Optimizer | None, layer: NamedNeurons) -> Tensor | float | None:
    """Return the norm neurons should have: one number, one per neuron of this rank, or ``None``."""
    if not isinstance(layer.sphere.radius, str):
        return layer.sphere.radius
    norms = None
    if isinstance(optimizer, Balanced):
        initial_norms = layer.group.get(INITIAL_NORMS)
        norms = initial_norms[layer.index] if initial_norms else None
    elif optimizer is not None:
        norms = optimizer.state.get(layer.param, {}).get("radius")
    if norms is None:
        return None
    if is_sharded(norms) and layer.neurons.num_groups == 1:
        # Torch replicates some of them. Taking this rank's part needs no communication.
        from nero.distributed import per_neuron

        local = per_neuron(layer.param, layer.neurons, dtype=norms.dtype, device=norms.device)  # type: ignore[arg-type]
        norms = norms.redistribute(local.device_mesh, local.placements)
    return to_local(norms).flatten()


def skipped_counts(optimizer: Optimizer) -> list[tuple[NamedNeurons, Tensor]]:
    """Return how many updates Nero has skipped, per parameter; empty for other optimizers."""
    counts = []
    for param, group, index, name in _members(optimizer) if isinstance(optimizer, Nero) else ():
        count = optimizer.state.get(param, {}).get("num_skipped")
        if count is not None:
            neurons = neurons_from_options(group, param.shape)
            constraint = as_constraint(group["constraint"])
            counts.append((NamedNeurons(name, param, neurons, constraint, group, index), count))
    return counts


def gradient_of(layer: NamedNeurons) -> Tensor | None:
    """Return this rank's part of the gradient."""
    grad = layer.param.grad
    if grad is None:
        return None
    if is_sharded(layer.param):
        from nero.distributed import local_pair

        return local_pair(layer.param, grad, f"`{layer.name}`")[1]
    return grad if grad.layout == torch.strided else grad.to_dense()


def _members(optimizer: Optimizer) -> Iterator[tuple[Tensor, dict[str, Any], int, str]]:
    for number, group in enumerate(optimizer.param_groups):
        names = group.get("param_names")
        for index, param in enumerate(group["params"]):
            name = f"groups.{number}.params.{index}" if names is None else names[index]
            yield param, group, index, name


def _has_layouts(optimizer: Optimizer, group: dict[str, Any]) -> bool:
    # Our optimizers infer layouts from shapes if a group has none, so use the same here.
    if isinstance(optimizer, Balanced | RelativeOptimizer):
        return True
    return any(group.get(key) is not None for key in LAYOUT_KEYS)


def _constraint(optimizer: Optimizer, group: dict[str, Any]) -> Any:
    if isinstance(optimizer, Balanced):
        return group.get("constraint", optimizer.constraint)
    return group["constraint"] if isinstance(optimizer, Nero) else UNCONSTRAINED
