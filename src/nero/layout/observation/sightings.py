"""The uses of a parameter in a forward pass, and the layout that follows from them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from nero.core.neurons import NEURON_ROLES, OTHER, Layout, Role
from nero.layout.observation.axes import Axes, dims_of

Stage: TypeAlias = Literal["weight", "row", "token", "data", "scaled"]
"""What has happened to a parameter so far.

``"weight"``: only constants and other parameters have touched it. ``"row"``: its rows were gathered.
``"token"``: it went through a norm or another parameter's layer as data does, for example a learned
query; if data then goes through the result, it was a weight after all. ``"data"``: it was added to data or
concatenated with it. ``"scaled"``: it was multiplied by data.
"""


@dataclass
class Sighting:
    """One use of a parameter with data; later operations may settle its role and fan-in."""

    role: Role | None
    """``None`` until an operation shows which dims are one vector."""
    fan_in: frozenset[int]
    operation: str
    num_groups: int = 1
    is_settled: bool = True
    is_weak: bool = False
    """Whether any other sighting counts more, as with the power iteration of spectral norm."""
    layer_number: int = 0
    """Number of the layer in the pass, from 1; 0 if it is none."""
    looked_up_at: int | None = None
    """If rows were gathered, the number of layers that data had passed before."""
    meets_rows: bool = False
    """Whether gathered rows were multiplied by gathered rows, and the products summed."""
    is_end: bool = False
    """Whether data went through it, and so far through no layer after it."""

    def layout(self, ndim: int) -> Layout | None:
        """Return the resulting layout, or ``None`` if the role is still open."""
        if self.role is None:
            return None
        if self.role not in NEURON_ROLES:
            return Layout(self.role)
        if not self.fan_in:
            return OTHER
        kept = tuple(d for d in range(ndim) if d not in self.fan_in)
        return Layout(self.role, kept, self.num_groups if 0 in self.fan_in else 1)


@dataclass(frozen=True)
class Source:
    """A parameter inside a tensor."""

    name: str
    axes: Axes
    stage: Stage = "weight"
    is_nonlinear: bool = False
    """Whether a nonlinear function was applied to it."""
    has_offset: bool = False
    """Whether a constant was added to it, as in norms that scale by ``1 + weight``."""
    is_switched: bool = False
    """Whether data has scaled it as a whole, as a mask scales the mask token."""
    sighting: Sighting | None = None
    """The sighting that later operations will settle."""
    factor: Literal["data", "rows"] | None = None
    """The other factor if gathered rows were multiplied elementwise: rows of a table, or other data."""

    @property
    def factor_role(self) -> Role:
        """Its role as a factor: a gain is neutral at 1, but not a weight that scales by ``1 + weight``."""
        return "other" if self.is_nonlinear or self.has_offset else "gain"

    def dims(self, which: Iterable[int] | None = None) -> frozenset[int]:
        """Return the parameter's dims that these dims of the tensor run along; by default all."""
        if which is None:
            return dims_of(self.axes)
        return dims_of([self.axes[d] for d in which if d < len(self.axes)])

    def with_axes(self, axes: Axes) -> "Source":
        """Return the same source in a tensor with other dims."""
        return replace(self, axes=axes)


@dataclass(frozen=True)
class Seen:
    """How one parameter was used in a forward pass."""

    layouts: tuple[Layout, ...]
    """The layouts of its uses: several if they contradict each other, none if it was not followed."""
    operations: tuple[str, ...]
    """The operations that consume it."""
    is_looked_up: bool = False
    """Whether its rows were looked up, or it was added to data."""
    is_scored: bool = False
    """Whether data was multiplied by every row after some rows had been looked up, as for logits."""
    meets_rows: bool = False
    """Whether looked-up rows were multiplied by looked-up rows, as in matrix factorization."""
    is_layer: bool = False
    """Whether data went through it."""
    ends: tuple[Layout, ...] = ()
    """Its layouts in uses where no layer came after it."""

    @property
    def how(self) -> str:
        """The operations, for messages."""
        return " and ".join(dict.fromkeys(self.operations)) or "never used"


def summarize(sightings: Sequence[Sighting], shape: Sequence[int]) -> Seen:
    """Summarize all sightings of a parameter; weak ones count only if there are no others.

    Example:
        >>> from nero.layout.observation.sightings import Sighting, summarize
        >>> summarize([Sighting("neuron", frozenset({1}), "mm")], (3, 4)).layouts
        (Layout(role='neuron', neuron_dims=(0,), num_groups=1),)
    """
    strong = [use for use in sightings if not use.is_weak] or list(sightings)
    uses = [use for use in strong if use.role is not None] or strong
    layouts: list[Layout] = []
    for use in uses:
        layout = use.layout(len(shape))
        if layout is not None and not any(_agree(layout, other) for other in layouts):
            layouts.append(layout)
    lookups = [use for use in uses if use.looked_up_at is not None]
    ends = [use.layout(len(shape)) for use in uses if use.is_end]
    return Seen(
        tuple(layouts),
        tuple(use.operation for use in uses),
        is_looked_up=any(use.role == "embedding" for use in uses),
        is_scored=any(_is_scored(use, lookup) for use in uses for lookup in lookups),
        meets_rows=any(lookup.meets_rows for lookup in lookups),
        is_layer=any(use.layer_number for use in uses),
        ends=tuple(layout for layout in ends if layout is not None),
    )


def _is_scored(layer: Sighting, lookup: Sighting) -> bool:
    """Whether a layer computes one number per row of the table after the table was looked up.

    A codebook is scored first, to choose the row to look up; it is not an output layer.
    """
    is_later = layer.layer_number > (lookup.looked_up_at or 0)
    return layer.looked_up_at is None and is_later and layer.fan_in == lookup.fan_in


def _agree(layout: Layout, other: Layout) -> bool:
    # Two uses without fan-in agree: a factor in one operation may be a term in another.
    if layout.neuron_dims is None or other.neuron_dims is None:
        return layout.neuron_dims is other.neuron_dims
    return layout.has_dims_of(other)


def same_neurons(layout: Layout, other: Layout, shape: Sequence[int]) -> bool:
    """Whether two layouts divide a parameter of this shape into the same neurons.

    Example:
        >>> from nero.layout import EMBEDDING, neurons
        >>> from nero.layout.observation.sightings import same_neurons
        >>> same_neurons(EMBEDDING, neurons(0, 1), (5, 1, 4))
        True
    """
    return _division(layout, shape) == _division(other, shape)


def _division(layout: Layout, shape: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return the fan-in dims longer than one, and the number of groups along dim 0."""
    neurons = layout.at(shape)
    if neurons.is_elementwise:
        return (), 1
    kept = {d % len(shape) for d in layout.neuron_dims or ()}
    return tuple(d for d, n in enumerate(shape) if n > 1 and d not in kept), neurons.num_groups
