"""A parameter with its neurons: the one form in which diagnostics and theory hold it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from nero.core.neurons import Neurons
from nero.core.sphere import BALANCED, Sphere, as_constraint
from nero.layout import Overrides
from nero.layout.groups import resolve


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
        lr = self.group.get("lr")  # some optimisers find their own, and have None here
        return math.nan if lr is None else float(lr)


def neurons_of_model(
    model: nn.Module, *, constraint: Sphere | str = BALANCED, overrides: Overrides = ()
) -> list[NamedNeurons]:
    """Return all parameters of a model in their order, elementwise ones included.

    Example:
        >>> from nero.diagnostics.neurons import neurons_of_model
        >>> [(each.name, each.neurons.fan_in) for each in neurons_of_model(nn.Linear(4, 3))]
        [('weight', 4), ('bias', 1)]
    """
    return [
        NamedNeurons(
            found.name,
            found.param,
            found.layout.at(found.param.shape),
            as_constraint(options.get("constraint", constraint)),
        )
        for found, _, options in resolve(model, overrides)
    ]
