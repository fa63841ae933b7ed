r"""Where the weights of a balanced network live: a product of spheres (section 6.2).

The neurons of one layer have one fan-in d, and with mean zero and norm one each lives on a sphere
of d - 2 dims. A network is the product of them all.
"""

import math
from dataclasses import dataclass

from torch import nn

from nero.core.arguments import whole_number
from nero.core.neurons import NEURON_ROLES
from nero.diagnostics.neurons import neurons_of_model
from nero.functional import BALANCED, Sphere, as_constraint
from nero.layout import Overrides
from nero_tools.theory.caps import log_cap_lower_bound, log_cap_measure


@dataclass(frozen=True)
class Spheres:
    """The spheres of neurons that share a fan-in, such as those of one layer.

    Args:
        num_neurons: m in the paper.
        fan_in: d in the paper.
        constraint: which sphere a neuron lives on; balanced, it has d - 2 dims, and with its mean
            free d - 1.
        name: of the layer.

    Raises:
        ValueError: if ``constraint`` leaves the norm free, so that there is no sphere.

    Example:
        >>> from nero_tools.theory import Spheres
        >>> Spheres(num_neurons=100, fan_in=784).sphere_dim
        782
        >>> Spheres(num_neurons=100, fan_in=784, constraint=nero.NORM_ONLY).sphere_dim
        783
    """

    num_neurons: int
    fan_in: int
    constraint: Sphere = BALANCED
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "constraint", as_constraint(self.constraint))  # or a name of one
        for name in ("num_neurons", "fan_in"):
            whole_number(name, getattr(self, name), smallest=0)
        if self.num_neurons < 1 or self.fan_in < 2:
            raise ValueError(
                f"there is no sphere for {self.num_neurons} neurons of fan-in {self.fan_in}: it must be "
                "one neuron or more, of fan-in two or more"
            )
        if self.constraint.radius is None:
            raise ValueError(
                f"the constraint {str(self.constraint)!r} leaves the norm free: no sphere; use one that "
                "fixes it, such as 'balanced'"
            )

    @property
    def sphere_dim(self) -> int:
        """Dims of each sphere. With a fan-in of two, Nero frees the mean, which leaves a circle."""
        return self.fan_in - (2 if self.constraint.for_fan_in(self.fan_in).centre else 1)

    def log_measure(self, angle_rad: float, *, is_exact: bool) -> float:
        """Return the log of the share of the product that lies within an angle in every sphere.

        By the exact measure of a cap if ``is_exact``, else by the paper's lower bound of it.
        """
        log_cap = log_cap_measure if is_exact else log_cap_lower_bound
        return self.num_neurons * log_cap(angle_rad, sphere_dim=self.sphere_dim)


@dataclass(frozen=True)
class WeightSpace:
    """The product of spheres in which a model is trained, and the parameters that have none.

    Example:
        >>> from nero_tools.theory import Spheres, WeightSpace
        >>> WeightSpace((Spheres(100, 784), Spheres(10, 100))).num_dims
        79180
    """

    spheres: tuple[Spheres, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    """Name of each parameter that no sphere describes, and why."""

    def __post_init__(self) -> None:
        is_several = isinstance(self.spheres, tuple | list)
        if not is_several or not all(isinstance(each, Spheres) for each in self.spheres):
            raise TypeError(f"spheres must be a tuple of Spheres, not {self.spheres!r}")

    @property
    def num_neurons(self) -> int:
        """Neurons of all layers."""
        return sum(s.num_neurons for s in self.spheres)

    @property
    def num_dims(self) -> int:
        """Dims of the whole product."""
        return sum(s.num_neurons * s.sphere_dim for s in self.spheres)

    def log_measure(self, angle_rad: float, *, is_exact: bool = False) -> float:
        """Return the log of the share of one solution whose neurons may all turn by an angle.

        By the exact measure of a cap if ``is_exact``, else by the paper's lower bound of it.
        """
        return math.fsum(s.log_measure(angle_rad, is_exact=is_exact) for s in self.spheres)


def weight_space(
    model: nn.Module, *, constraint: Sphere | str = BALANCED, overrides: Overrides = ()
) -> WeightSpace:
    """Find the product of spheres in which the neurons of ``model`` live.

    Biases, gains and neurons without a fixed norm have no sphere, and are left out by name. What
    follows from the space then holds for a network in which they have been fixed independently
    of the data.

    Args:
        model: the model, also on the meta device; only shapes are read.
        constraint: as given to the optimizer.
        overrides: as given to the optimizer.

    Raises:
        ValueError: if no parameter has a sphere.

    Example:
        >>> from nero_tools.theory import weight_space
        >>> space = weight_space(nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10)))
        >>> [(s.name, s.num_neurons, s.sphere_dim) for s in space.spheres]
        [('0.weight', 100, 782), ('2.weight', 10, 98)]
        >>> space.left_out
        (('0.bias', 'bias'), ('2.bias', 'bias'))
    """
    spheres, left_out = [], []
    for each in neurons_of_model(model, constraint=constraint, overrides=overrides):
        if not each.param.requires_grad:
            left_out.append((each.name, "frozen"))
        elif not each.param.is_floating_point():
            left_out.append((each.name, f"{each.param.dtype}"))
        elif each.neurons.role not in NEURON_ROLES:
            left_out.append((each.name, each.neurons.role))
        elif each.neurons.is_elementwise:
            left_out.append((each.name, "fan-in 1"))
        elif each.constraint.radius is None:
            left_out.append((each.name, "norm is free"))
        else:
            spheres.append(
                Spheres(each.neurons.num_neurons, each.neurons.fan_in, each.constraint, each.name)
            )
    if not spheres:
        raise ValueError(
            "no parameter of the model has neurons on a sphere: pass one that has layers, and a constraint "
            "that fixes their norm"
        )
    return WeightSpace(tuple(spheres), tuple(left_out))
