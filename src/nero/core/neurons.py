"""Layouts, and the neurons they define in a parameter.

A layout is three plain values, ``role``, ``neuron_dims`` and ``num_groups``, without references to tensors.
So it can be stored in a param group and a checkpoint, and survives a trainer that swaps parameters. Applied
to a shape it gives `Neurons`, which is all that the rest of the library uses; an optimizer computes them
once, when a parameter is added.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from torch import Tensor

Role: TypeAlias = Literal["neuron", "embedding", "gain", "bias", "other"]
ROLES: tuple[str, ...] = get_args(Role)
NEURON_ROLES = ("neuron", "embedding")
"""The roles of parameters that have neurons."""
LAYOUT_KEYS = ("role", "neuron_dims", "num_groups")
"""The param-group options that make up a layout."""


class LayoutWarning(UserWarning):
    """Neurons were guessed, an example contradicts what is registered, or no output layer is known.

    The message says what to do.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("ignore", nero.LayoutWarning)
        >>> optimizer = nero.Nero([nn.Parameter(torch.randn(3, 4))])
    """


class LayoutError(ValueError):
    """A parameter's neurons could not be determined; the message names it and says what to do.

    Example:
        >>> nero.Nero(nn.LazyLinear(3))
        Traceback (most recent call last):
        nero.core.neurons.LayoutError: `weight` has no shape yet: run the model once before ...
    """


def _are_dims(dims: Any) -> bool:
    is_several = isinstance(dims, Sequence) and not isinstance(dims, str)
    return is_several and all(isinstance(d, int) for d in dims)


@dataclass(frozen=True)
class Layout:
    """Which dims of a parameter index its neurons; all other dims are fan-in.

    Args:
        role: what the parameter does.
        neuron_dims: the dims that index neurons; ``None`` for elementwise parameters, which have no fan-in.
        num_groups: number of groups along dim 0, a fan-in dim. A grouped ``ConvTranspose`` stores the
            inputs of all its groups in dim 0, and each group has its own neurons.

    Example:
        >>> from nero.layout import Layout
        >>> conv_transpose = Layout("neuron", neuron_dims=(1,), num_groups=2).at((6, 4, 3, 3))
        >>> conv_transpose.num_neurons, conv_transpose.fan_in, conv_transpose.state_shape
        (8, 27, (2, 4, 1, 1))
    """

    role: Role
    neuron_dims: tuple[int, ...] | None = None
    num_groups: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.role, str) or self.role not in ROLES:
            raise LayoutError(f"role must be one of {ROLES}, not {self.role!r}")
        if (self.neuron_dims is None) != (self.role not in NEURON_ROLES):
            raise LayoutError(
                f"a parameter with role {self.role!r} cannot have neuron_dims {self.neuron_dims!r}: "
                "neurons and embeddings need them, other roles have none; set both role and neuron_dims, "
                "or neither"
            )
        if self.neuron_dims is not None and not _are_dims(self.neuron_dims):
            raise LayoutError(f"neuron_dims must be a tuple of dims, not {self.neuron_dims!r}")
        if not isinstance(self.num_groups, int) or self.num_groups < 1:
            raise LayoutError(
                f"num_groups must be a whole number from 1 on, not {self.num_groups!r}"
            )
        if self.num_groups > 1 and (self.neuron_dims is None or 0 in self.neuron_dims):
            raise LayoutError(
                "num_groups splits dim 0 into fan-ins, so dim 0 cannot index neurons: leave it out of "
                "neuron_dims, or leave num_groups at 1"
            )

    def at(self, shape: Sequence[int]) -> "Neurons":
        """Apply the layout to a parameter of this shape."""
        shape, groups = tuple(shape), self.num_groups
        if self.neuron_dims is None:
            return Neurons(self.role, None, 1, (), 1, shape)
        if any(not -len(shape) <= d < len(shape) for d in self.neuron_dims):
            raise LayoutError(
                f"neuron_dims {self.neuron_dims} do not fit shape {shape}: they must be different dims "
                f"from 0 to {len(shape) - 1}"
            )
        if groups > 1 and shape[0] % groups:
            raise LayoutError(
                f"{groups} groups do not divide shape {shape}: they must divide dim 0"
            )
        neuron_dims = tuple(sorted({d % len(shape) for d in self.neuron_dims}))
        dims = tuple(d for d in range(len(shape)) if d not in neuron_dims)
        fan_in = math.prod([shape[d] for d in dims]) // groups
        if fan_in <= 1:
            return Neurons(self.role, neuron_dims, 1, (), 1, shape)
        kept = tuple(n if d in neuron_dims else 1 for d, n in enumerate(shape))
        if groups > 1:
            kept, dims = (groups, *kept[1:]), tuple(d + 1 for d in dims)
        return Neurons(self.role, neuron_dims, groups, dims, fan_in, kept)

    def has_dims_of(self, other: "Layout") -> bool:
        """Whether both define the same neurons; the roles "neuron" and "embedding" count as equal.

        Example:
            >>> from nero.layout import EMBEDDING, neurons
            >>> EMBEDDING.has_dims_of(neurons(0)), EMBEDDING.has_dims_of(neurons(1))
            (True, False)
        """
        both_neurons = self.role in NEURON_ROLES and other.role in NEURON_ROLES
        return (both_neurons or self.role == other.role) and (
            (self.neuron_dims, self.num_groups) == (other.neuron_dims, other.num_groups)
        )

    def as_options(self) -> dict[str, Any]:
        """Return the layout as param-group options."""
        return {key: getattr(self, key) for key in LAYOUT_KEYS}


class Neurons(NamedTuple):
    """One parameter's neurons: a layout applied to its shape by [`Layout.at`][nero.layout.Layout.at]."""

    role: Role
    neuron_dims: tuple[int, ...] | None
    """The dims of the parameter that index neurons."""
    num_groups: int
    """Number of groups into which `view` splits dim 0."""
    fan_in_dims: tuple[int, ...]
    """The fan-in dims of `view`; empty for elementwise parameters."""
    fan_in: int
    """Number of weights per neuron."""
    state_shape: tuple[int, ...]
    """The shape of one number per neuron, with as many dims as the parameter."""

    @property
    def is_elementwise(self) -> bool:
        """Whether elements are updated independently: no fan-in by role, or a fan-in of one."""
        return not self.fan_in_dims

    @property
    def num_neurons(self) -> int:
        """The number of neurons, or of elements for elementwise parameters."""
        return math.prod(self.state_shape)

    def view(self, tensor: Tensor) -> Tensor:
        """View a parameter, its gradient or its state so that `fan_in_dims` applies.

        Never copies, in any memory format, since it splits only dim 0.
        """
        if self.num_groups > 1:
            grouped: Tensor = tensor.unflatten(0, (self.num_groups, -1))
            return grouped
        return tensor


def neurons(*dims: int, num_groups: int = 1) -> Layout:
    """Return the layout of weights whose neurons are indexed by ``dims``.

    Example:
        >>> from nero.layout import neurons
        >>> neurons(0).at((20, 10)).fan_in, neurons(1).at((20, 10)).fan_in
        (10, 20)
    """
    return Layout("neuron", dims, num_groups)


EMBEDDING = Layout("embedding", (0,))
"""A table of vectors, one row per token or position: each row is a neuron."""
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
        >>> layout_from_shape((64, 3, 3, 3)).neuron_dims, layout_from_shape((1, 64, 1, 1)).role
        ((0,), 'other')
    """
    return OTHER if is_broadcast(shape) else neurons(0)


def is_broadcast(shape: Sequence[int]) -> bool:
    """Whether at most one dim is longer than one, as for a gain or bias per channel.

    Example:
        >>> from nero.core.neurons import is_broadcast
        >>> is_broadcast((1, 64, 1, 1)), is_broadcast((2, 64))
        (True, False)
    """
    return sum(n > 1 for n in shape) <= 1


def layout_from_options(options: Mapping[str, Any], shape: Sequence[int]) -> Layout:
    """Read a layout from param-group options; missing ones are guessed from the shape.

    Example:
        >>> from nero.layout import layout_from_options
        >>> layout_from_options({"neuron_dims": (1,)}, (3, 4)).at((3, 4)).fan_in
        3
        >>> layout_from_options({"role": "gain"}, (3, 4)).role
        'gain'
    """
    role, dims, num_groups = (options.get(key) for key in LAYOUT_KEYS)
    num_groups = 1 if num_groups is None else num_groups
    if dims is not None:
        dims = (dims,) if isinstance(dims, int) else tuple(dims) if _are_dims(dims) else dims
        return Layout(role or "neuron", dims, num_groups)
    if num_groups != 1:
        raise LayoutError(
            f"num_groups is {num_groups!r}, but has no effect without neuron_dims: give both, or neither"
        )
    if role == "neuron" and len(shape) > 1:
        return neurons(0)
    if role is None or role == "neuron":
        return layout_from_shape(shape)
    return EMBEDDING if role == "embedding" else Layout(role)


def neurons_from_options(options: Mapping[str, Any], shape: Sequence[int]) -> Neurons:
    """Read the neurons of a parameter of this shape from param-group options.

    Example:
        >>> from nero.layout import neurons_from_options
        >>> neurons_from_options({"neuron_dims": (1,)}, (3, 4)).fan_in
        3
    """
    return layout_from_options(options, shape).at(shape)
