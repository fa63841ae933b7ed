"""The two lists behind Nero: all options of an update, and all state tensors.

An option is a field of `Hyper`, a state tensor an entry of `STATE`. The optimizer's checks, checkpoints and
resharding, the bytes in ``describe``, the signature of a cached plan, the arguments of the compiled
operator, the CPU kernel's record and Triton's columns all follow from these declarations. A new option then
only needs its effect, in `nero.core.rule` and the kernels.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args, get_type_hints

import torch
from torch import Tensor

from nero.core.arguments import real_number
from nero.core.directions import direction_name
from nero.core.neurons import Neurons
from nero.core.precision import dtype_name, finite_part, sum_dtype, working_dtype
from nero.core.sharding import full_tensor
from nero.core.sphere import BALANCED, UNCONSTRAINED, Sphere, as_constraint

Nonfinite: TypeAlias = Literal["skip", "raise", "propagate"]
NONFINITE: tuple[Nonfinite, ...] = get_args(Nonfinite)
MomentumDtype: TypeAlias = Literal["float32", "bfloat16"]
MOMENTUM_DTYPES: tuple[MomentumDtype, ...] = get_args(MomentumDtype)
Norm: TypeAlias = Literal["rms", "peak"]
NORMS: tuple[Norm, ...] = get_args(Norm)
PROPAGATE, PEAK = NONFINITE.index("propagate"), NORMS.index("peak")
_RATES = "lr must be finite and at least 0"


# --- readers: each takes an option's name and value, and returns the value or raises ---


def unit_interval(name: str, value: float) -> float:
    """Read a number in [0, 1)."""
    return _number(name, value, lambda x: 0 <= x < 1, "it must be in [0, 1)")


def unit_intervals(name: str, values: Any) -> Any:
    """Read two numbers in [0, 1)."""
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != 2:
        raise TypeError(f"{name} must be two numbers, not {values!r}")
    for index, value in enumerate(values):
        if not 0 <= real_number(f"{name}[{index}]", value) < 1:
            raise ValueError(
                f"Invalid {name.removesuffix('s')} parameter at index {index}: {value}; it must be in "
                "[0, 1)"
            )
    return values


def non_negative(name: str, value: float) -> float:
    """Read a number that is at least zero and finite."""
    return _number(name, value, lambda x: 0 <= x < math.inf, "it must be finite and at least 0")


def positive(name: str, value: float) -> float:
    """Read a number that is more than zero; it may be infinite."""
    return _number(name, value, lambda x: x > 0, "it must be positive")


def finite_positive(name: str, value: float) -> float:
    """Read a number that is more than zero and finite."""
    return _number(name, value, lambda x: 0 < x < math.inf, "it must be positive")


def flag(name: str, value: bool) -> bool:
    """Read a bool; strings are refused."""
    if not isinstance(value, bool | int) or value not in (0, 1):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def int64(name: str, value: int) -> int:
    """Read an integer that fits into 64 bits."""
    if not isinstance(value, int) and hasattr(value, "__index__"):
        value = operator.index(value)  # numpy's
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ValueError(f"{name} must be a 64-bit integer, not {value!r}")
    return value


def learning_rate(name: str, value: Any) -> Any:
    """Read a learning rate: a finite number that is at least zero, or a tensor with one.

    The value of a tensor on another device is not checked, since that would wait for the device.
    """
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"Tensor {name} must be 1-element")
        if value.is_complex():
            raise TypeError(f"{name} must be a real number, not {value.dtype}")
        if value.device.type == "cpu" and not 0 <= value.item() < math.inf:
            raise ValueError(f"Invalid learning rate: {value.item()}; {_RATES}")
    elif not 0 <= real_number(name, value) < math.inf:
        raise ValueError(f"Invalid learning rate: {value}; {_RATES}")
    return value


def rate_of_step(lr: Any) -> float | Tensor:
    """Read the learning rate of a group at a step: a Python number, or a tensor without dims."""
    if type(lr) is float and 0 <= lr < math.inf:  # nearly always, and at every step
        return lr
    if not torch.compiler.is_compiling():  # a compiler cannot look into a tensor
        learning_rate("lr", lr)
    return lr.reshape(()) if isinstance(lr, Tensor) else float(lr)


def sphere(name: str, value: Any) -> Sphere:
    """Read a constraint or its name."""
    return as_constraint(value)


def nonfinite_rule(name: str, value: Nonfinite) -> Nonfinite:
    """Read how to treat neurons that are not finite."""
    _check_choice(name, value, NONFINITE)
    return value


def norm_name(name: str, value: Norm) -> Norm:
    """Read the running norm of past gradients."""
    _check_choice(name, value, NORMS)
    return value


def momentum_dtype_name(name: str, value: MomentumDtype | torch.dtype) -> MomentumDtype:
    """Read the dtype of momentum buffers, or its name."""
    text = dtype_name(value) if isinstance(value, torch.dtype) else value
    if not isinstance(text, str) or text not in MOMENTUM_DTYPES:
        raise ValueError(f"momentum_dtype must be one of {MOMENTUM_DTYPES}, not {value!r}")
    return text


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {choices}, not {value!r}")


def _number(name: str, value: Any, is_good: Callable[[float], bool], rule: str) -> float:
    if not is_good(real_number(name, value)):
        raise ValueError(f"Invalid {name} value: {value!r}; {rule}")
    return float(value)


class Hyper(NamedTuple):
    """The options of one parameter's update: THE list of options.

    A field's annotation has its type and its reader; its default is the optimizer's. The learning rate is
    passed separately, since it alone changes from step to step.

    Example:
        >>> from nero.core.spec import Hyper
        >>> Hyper(beta=0.9).beta, Hyper().nonfinite
        (0.9, 'skip')
    """

    beta: Annotated[float, unit_interval] = 0.999
    norm: Annotated[Norm, norm_name] = "rms"
    momentum: Annotated[float, unit_interval] = 0.0
    momentum_dtype: Annotated[MomentumDtype, momentum_dtype_name] = "float32"
    direction: Annotated[str, direction_name] = "gradient"
    constraint: Annotated[Sphere, sphere] = BALANCED
    bias_scale: Annotated[float, finite_positive] = 0.01
    gain_penalty: Annotated[float, non_negative] = 0.0
    maximize: Annotated[bool, flag] = False
    nonfinite: Annotated[Nonfinite, nonfinite_rule] = "skip"
    stochastic_rounding: Annotated[bool, flag] = False
    seed: Annotated[int, int64] = 0

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> "Hyper":
        """Read and check the options of a param group."""
        return cls(*[READERS[name](name, options[name]) for name in cls._fields])

    def for_neurons(self, neurons: Neurons) -> "Hyper":
        """Return the options that apply to these neurons; mostly they are the same."""
        constraint = UNCONSTRAINED
        if not neurons.is_elementwise:
            constraint = self.constraint.for_fan_in(neurons.fan_in)
        penalty = self.gain_penalty if neurons.role == "gain" else 0.0
        is_layer = neurons.role == "neuron" and not neurons.is_elementwise
        direction = self.direction if is_layer else "gradient"
        return self._replace(constraint=constraint, gain_penalty=penalty, direction=direction)

    @property
    def draws_noise(self) -> bool:
        """Whether a step may round at random."""
        return self.stochastic_rounding or self.momentum_dtype == "bfloat16"

    def along_given(self) -> "Hyper":
        """Return the options for a step along a given direction, which replaces the gradient."""
        return self._replace(direction="gradient", momentum=0.0, maximize=False)

    def encode(self) -> dict[str, float]:
        """Return the options as numbers for kernels, with the names and types in `COLUMNS`.

        `direction` is left out: kernels get the direction as their gradient.
        """
        values: dict[str, Any] = self._asdict()
        radius, centre = self.constraint.radius, self.constraint.centre
        del values["constraint"]
        values["target"] = (
            math.nan if radius is None else INITIAL if radius == "initial" else radius
        )
        values["centre"] = centre
        for name, choices in _CHOICES.items():
            values[name] = choices.index(values[name])
        return {name: kind(values[name]) for name, kind in COLUMNS.items()}

    @classmethod
    def decode(cls, columns: Mapping[str, float]) -> "Hyper":
        """Read back what `encode` wrote.

        Example:
            >>> from nero.core.spec import Hyper
            >>> Hyper.decode(Hyper(beta=0.9, nonfinite="raise").encode()).nonfinite
            'raise'
        """
        values = cls._field_defaults | {
            name: columns[name] for name in cls._fields if name in columns
        }
        target = columns["target"]
        radius: Any = None if math.isnan(target) else "initial" if target == INITIAL else target
        values["constraint"] = Sphere(radius, bool(columns["centre"]))
        for name, choices in _CHOICES.items():
            values[name] = choices[int(columns[name])]
        return cls.read(values)


# Options with named choices, which kernels read as numbers.
_CHOICES: dict[str, tuple[str, ...]] = {
    "nonfinite": NONFINITE,
    "momentum_dtype": MOMENTUM_DTYPES,
    "norm": NORMS,
}
INITIAL = -1.0  # the `target` of Sphere(radius="initial"); NaN is that of a free norm

READERS: dict[str, Callable[[str, Any], Any]] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Hyper, include_extras=True).items()
}


def _columns() -> dict[str, type]:
    columns: dict[str, type] = {}
    for name, default in Hyper._field_defaults.items():
        if isinstance(default, Sphere):
            columns |= {"target": float, "centre": int}
        elif name != "direction":
            columns[name] = float if isinstance(default, float) else int
    return columns


COLUMNS: dict[str, type] = _columns()
"""The names and types of the options that kernels read."""


class StateSpec(NamedTuple):
    """One state tensor per parameter: its shape, its dtype, and when it exists."""

    shape: Literal["scalar", "per neuron", "per element"]
    dtype: torch.dtype | Callable[[Any], torch.dtype | None] | None = None
    """A dtype, or a function of the options; ``None`` is the parameter's working dtype."""
    exists: Callable[[Neurons, Any], bool] = lambda neurons, hyper: True
    """Whether a parameter with these neurons and options has it."""
    initial: Callable[[Tensor, Any, Callable[[], Tensor]], Tensor] | None = None
    """Its initial value, from the parameter, the options and the neurons' norms; zeros by default."""
    is_written: bool = True
    """Whether steps change it."""
    is_required: bool = True
    """Whether every checkpoint has it; those of older versions may lack some."""

    def dtype_for(self, dtype: torch.dtype, hyper: Any) -> torch.dtype:
        """Return its dtype for a parameter of ``dtype`` with these options."""
        own = self.dtype
        if own is not None and not isinstance(own, torch.dtype):
            own = own(hyper)
        return own or working_dtype(dtype)

    def num_bytes(self, neurons: Neurons, numel: int, dtype: torch.dtype, hyper: Any) -> int:
        """Return its size in bytes for a parameter of ``numel`` weights of ``dtype``."""
        sizes = {"scalar": 1, "per neuron": neurons.num_neurons, "per element": numel}
        return sizes[self.shape] * self.dtype_for(dtype, hyper).itemsize


def _initial_scale(param: Tensor, hyper: Hyper, norms: Callable[[], Tensor]) -> Tensor:
    # sigma_b: mean |b| over finite entries, since a masked logit of -inf has no size; bias_scale if the
    # parameter starts at zero. Sums and counts are reduced over ranks, so all have the same scale.
    finite = finite_part(param.to(sum_dtype(param)))
    num_finite = full_tensor(torch.isfinite(param).sum())
    scale = full_tensor(finite.abs().sum()) / num_finite.clamp(min=1)
    return torch.where(scale > 0, scale, hyper.bias_scale)


def _initial_radius(param: Tensor, hyper: Hyper, norms: Callable[[], Tensor]) -> Tensor:
    norm = norms()
    return torch.where(norm > 0, norm, hyper.bias_scale)


STATE: dict[str, StateSpec] = {
    "step": StateSpec("scalar", torch.int64),
    "num_skipped": StateSpec("scalar", torch.int64, is_required=False),
    "scale": StateSpec(
        "scalar",
        exists=lambda neurons, hyper: neurons.is_elementwise,
        initial=_initial_scale,
        is_written=False,
    ),
    "exp_avg": StateSpec(
        "per element",
        dtype=lambda hyper: torch.bfloat16 if hyper.momentum_dtype == "bfloat16" else None,
        exists=lambda neurons, hyper: hyper.momentum > 0,
        is_required=False,
    ),
    "exp_avg_norm": StateSpec("per neuron"),
    "radius": StateSpec(
        "per neuron",
        exists=lambda neurons, hyper: hyper.constraint.radius == "initial",
        initial=_initial_radius,
        is_written=False,
        is_required=False,
    ),
}
"""Nero's state: THE table of state tensors, in the order of checkpoints."""
