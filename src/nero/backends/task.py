"""One parameter's update, as every backend receives it."""

from typing import Literal, NamedTuple, TypeAlias, get_args

from torch import Tensor

from nero.functional import Sphere

Nonfinite: TypeAlias = Literal["skip", "raise", "propagate"]
NONFINITE: tuple[Nonfinite, ...] = get_args(Nonfinite)


class NeroOptions(NamedTuple):
    """The options of a param group that an update needs."""

    lr: float | Tensor
    beta: float
    constraint: Sphere
    bias_scale: float
    gain_penalty: float
    maximize: bool
    nonfinite: Nonfinite
    stochastic_rounding: bool
    seed: int


class NeroTask(NamedTuple):
    """A parameter with its gradient and state, viewed so that ``fan_in_dims`` applies.

    Backends write into ``weight``, ``avg_norm``, ``step`` and ``num_skipped``, and never into ``grad``.
    """

    weight: Tensor
    grad: Tensor
    avg_norm: Tensor
    step: Tensor
    num_skipped: Tensor
    scale: Tensor | None
    """Initial scale of a parameter without fan-in; ``None`` for neurons."""
    radius: Tensor | None
    """Norm of each neuron, for ``Sphere(radius="initial")``."""
    fan_in_dims: tuple[int, ...]
    """Empty for a parameter without fan-in."""
    constraint: Sphere
    """What these neurons obey: the group's constraint, but for fan-in 2."""
    options: NeroOptions
    stream: int
    """Tells parameters apart in the noise of stochastic rounding."""
