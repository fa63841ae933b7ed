"""A parameter with its neurons: the one form in which diagnostics and theory hold it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from nero.functional import BALANCED, Sphere, as_constraint
from nero.layout import Layout, Overrides
from nero.layout.groups import resolve


@dataclass(frozen=True, eq=False)
class NamedNeurons:
    """A parameter, its name, its neurons, and where they should live. `resolve_neurons` makes one."""

    name: str
    param: Tensor
    layout: Layout
    is_elementwise: bool
    """Whether there are no neurons, because every element stands alone."""
    fan_in_dims: tuple[int, ...]
    """The fan-in dims of ``layout.view(param)``; none, of an elementwise parameter."""
    fan_in: int
    num_neurons: int
    constraint: Sphere
    """As given."""
    sphere: Sphere
    """What neurons of this fan-in can obey of it."""
    group: Mapping[str, Any]
    """The options of its param group."""
    index: int
    """Position in its group."""

    @property
    def lr(self) -> float:
        """The learning rate of its group, or NaN; waits for the device if that is a tensor."""
        lr = self.group.get("lr")  # some optimisers find their own, and have None here
        return math.nan if lr is None else float(lr)


def resolve_neurons(
    name: str,
    param: Tensor,
    layout: Layout,
    constraint: Sphere | str,
    group: Mapping[str, Any],
    index: int = 0,
) -> NamedNeurons:
    """Resolve a layout for the shape of one parameter."""
    constraint, shape = as_constraint(constraint), param.shape
    is_elementwise, fan_in = layout.is_elementwise(shape), layout.fan_in(shape)
    return NamedNeurons(
        name,
        param,
        layout,
        is_elementwise=is_elementwise,
        fan_in_dims=() if is_elementwise else layout.fan_in_dims(shape),
        fan_in=fan_in,
        num_neurons=layout.num_neurons(shape),
        constraint=constraint,
        sphere=constraint.for_fan_in(fan_in),
        group=group,
        index=index,
    )


def neurons_of_model(
    model: nn.Module, *, constraint: Sphere | str = BALANCED, overrides: Overrides = ()
) -> list[NamedNeurons]:
    """Return all parameters of a model in their order, elementwise ones included.

    Example:
        >>> from nero.diagnostics.neurons import neurons_of_model
        >>> [(each.name, each.fan_in) for each in neurons_of_model(nn.Linear(4, 3))]
        [('weight', 4), ('bias', 1)]
    """
    return [
        resolve_neurons(
            found.name, found.param, found.layout, options.get("constraint", constraint), options
        )
        for found, _, options in resolve(model, overrides)
    ]
