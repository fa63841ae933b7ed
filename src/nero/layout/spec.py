"""What a layout is: which dims of a parameter are one neuron's fan-in, and what the parameter does.

A layout is three plain values, so that it can live in a param group, travel through a checkpoint and
survive a trainer that swaps the parameters: ``role``, ``neuron_dims``, ``num_groups``, and nothing
that points at a tensor.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from torch import Tensor

Role: TypeAlias = Literal["neuron", "gain", "bias", "other"]
ROLES: tuple[str, ...] = get_args(Role)
LAYOUT_KEYS = ("role", "neuron_dims", "num_groups")
"""The param-group options that make up a layout."""


class LayoutError(ValueError):
    """A parameter's neurons could not be determined; the message names it and says what to do.

    Example:
        >>> nero.Nero(nn.LazyLinear(3))
        Traceback (most recent call last):
        nero.layout.spec.LayoutError: `weight` has no shape yet: run the model once before ...
    """


@dataclass(frozen=True)
class Layout:
    """Which dims of a parameter index its neurons; all other dims are fan-in.

    Args:
        role: what the parameter does.
        neuron_dims: the dims that index neurons; ``None`` where there is no fan-in and every
            element stands alone.
        num_groups: parts into which dim 0, a fan-in dim, is cut. A grouped ``ConvTranspose`` keeps
            the inputs of all its groups in dim 0, and each part belongs to neurons of its own.

    Example:
        >>> from nero.layout import Layout
        >>> conv_transpose = Layout("neuron", neuron_dims=(1,), num_groups=2)
        >>> conv_transpose.num_neurons((6, 4, 3, 3)), conv_transpose.fan_in((6, 4, 3, 3))
        (8, 27)
        >>> conv_transpose.state_shape((6, 4, 3, 3))
        (2, 4, 1, 1)
    """

    role: Role
    neuron_dims: tuple[int, ...] | None = None
    num_groups: int = 1

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise LayoutError(f"role must be one of {ROLES}, not {self.role!r}")
        if (self.neuron_dims is None) != (self.role != "neuron"):
            raise LayoutError(
                f"a parameter with role {self.role!r} cannot have neuron_dims {self.neuron_dims!r}: "
                "neurons need them, and nothing else has them"
            )
        if self.num_groups > 1 and (self.neuron_dims is None or 0 in self.neuron_dims):
            raise LayoutError("num_groups cuts dim 0 into fan-ins, so dim 0 cannot index neurons")

    def is_elementwise(self, shape: Sequence[int]) -> bool:
        """Whether every element stands alone: no fan-in by role, or a fan-in of one."""
        return self.neuron_dims is None or self.fan_in(shape) <= 1

    def fan_in(self, shape: Sequence[int]) -> int:
        """Return the number of weights of one neuron."""
        if self.neuron_dims is None:
            return 1
        dims = self._checked_dims(shape)
        return math.prod([n for d, n in enumerate(shape) if d not in dims]) // self.num_groups

    def num_neurons(self, shape: Sequence[int]) -> int:
        """Return the number of neurons, or of elements where every element stands alone."""
        return math.prod(self.state_shape(shape))

    def state_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of one number a neuron, with as many dims as the parameter."""
        if self.is_elementwise(shape):
            return tuple(shape)
        dims = self._checked_dims(shape)
        kept = tuple(n if d in dims else 1 for d, n in enumerate(shape))
        return (self.num_groups, *kept[1:]) if self.num_groups > 1 else kept

    def fan_in_dims(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the fan-in dims of `view`."""
        dims = self._checked_dims(shape)
        fan_in = tuple(d for d in range(len(shape)) if d not in dims)
        return tuple(d + 1 for d in fan_in) if self.num_groups > 1 else fan_in

    def view(self, tensor: Tensor) -> Tensor:
        """View a parameter, its gradient or its state so that `fan_in_dims` applies.

        A view in every memory format, never a copy: only dim 0 is ever cut.
        """
        if self.num_groups > 1:
            cut: Tensor = tensor.unflatten(0, (self.num_groups, -1))
            return cut
        return tensor

    def _checked_dims(self, shape: Sequence[int]) -> frozenset[int]:
        assert self.neuron_dims is not None
        if any(not -len(shape) <= d < len(shape) for d in self.neuron_dims):
            raise LayoutError(f"neuron_dims {self.neuron_dims} do not fit shape {tuple(shape)}")
        if self.num_groups > 1 and shape[0] % self.num_groups:
            raise LayoutError(f"{self.num_groups} groups do not divide shape {tuple(shape)}")
        return frozenset(d % len(shape) for d in self.neuron_dims)

    def as_options(self) -> dict[str, Any]:
        """Return the layout as param-group options."""
        return {key: getattr(self, key) for key in LAYOUT_KEYS}


def neurons(*dims: int, num_groups: int = 1) -> Layout:
    """Return the layout of weights whose neurons are indexed by ``dims``.

    Example:
        >>> from nero.layout import neurons
        >>> neurons(0).fan_in((20, 10)), neurons(1).fan_in((20, 10))
        (10, 20)
    """
    return Layout("neuron", dims, num_groups)


GAIN = Layout("gain")
"""A multiplier, such as the weight of a norm layer; `gain_penalty` acts on it."""
BIAS = Layout("bias")
"""A bias."""
OTHER = Layout("other")
"""Anything else without fan-in, such as the slope of a PReLU."""


def layout_from_shape(shape: Sequence[int]) -> Layout:
    """Guess a layout from the shape alone: dim 0 indexes neurons, as in Linear and Conv.

    Example:
        >>> from nero.layout import layout_from_shape
        >>> layout_from_shape((64, 3, 3, 3)).neuron_dims, layout_from_shape((64,)).role
        ((0,), 'other')
    """
    return neurons(0) if len(shape) >= 2 else OTHER


def as_dims(dims: int | Sequence[int] | None) -> tuple[int, ...] | None:
    """Return the ``neuron_dims`` of a param group as a tuple, if it has any: they may be one number."""
    if dims is None:
        return None
    return (dims,) if isinstance(dims, int) else tuple(dims)


def layout_from_options(options: Mapping[str, Any], shape: Sequence[int]) -> Layout:
    """Read a layout from param-group options; what they leave open comes from the shape.

    Example:
        >>> from nero.layout import layout_from_options
        >>> layout_from_options({"neuron_dims": (1,)}, (3, 4)).fan_in((3, 4))
        3
        >>> layout_from_options({"role": "gain"}, (3, 4)).role
        'gain'
    """
    role, dims = options.get("role"), options.get("neuron_dims")
    num_groups = options.get("num_groups") or 1
    dims = as_dims(dims)
    if dims is not None:
        return Layout(role or "neuron", dims, num_groups)
    if role is None or role == "neuron":
        return layout_from_shape(shape)
    return Layout(role)
