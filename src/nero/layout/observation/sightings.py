"""What became of a parameter in a forward pass, and the layout that this amounts to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from nero.core.neurons import NEURON_ROLES, OTHER, Layout, Role
from nero.layout.observation.axes import Axes, dims_of

Stage: TypeAlias = Literal["weight", "row", "token", "data", "scaled"]
"""How far a parameter has come.

``"weight"``: only constants and other parameters have touched it. ``"row"``: rows of it were gathered.
``"token"``: it went through a norm or another parameter's layer in the place of data, as learned queries
do; it was a weight after all if data then goes through the outcome. ``"data"``: it was added to data, or
stands beside it. ``"scaled"``: it was multiplied with data.
"""


@dataclass
class Sighting:
    """One meeting of a parameter with data, which what follows may settle."""

    role: Role | None
    """``None`` where nothing has shown yet which dims are one vector."""
    fan_in: frozenset[int]
    operation: str
    num_groups: int = 1
    is_settled: bool = True
    is_weak: bool = False
    """Whether any other sighting tells more, as with the power iteration of spectral norm."""
    place: int = 0
    """As the weight of a layer that data went through: the how-manieth of the pass it was; or 0."""
    looked_up_at: int | None = None
    """Where rows were gathered: how many layers data had gone through before."""
    meets_rows: bool = False
    """Whether gathered rows were multiplied with gathered rows, and the products added up."""
    is_end: bool = False
    """Whether data went through it, and so far through no layer after that."""

    def layout(self, ndim: int) -> Layout | None:
        """Return the layout that follows, or ``None`` where nothing does."""
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
    """Whether a function that is not linear was applied on the way."""
    has_offset: bool = False
    """Whether a constant was added on the way, as in norms that scale by ``1 + weight``."""
    is_switched: bool = False
    """Whether data has scaled it as a whole, as a mask does with the token that replaces others."""
    sighting: Sighting | None = None
    """What will be settled by what follows."""
    factor: Literal["data", "rows"] | None = None
    """By what gathered rows were multiplied, number by number: by data, and if so by rows of a table."""

    @property
    def factor_role(self) -> Role:
        """Its role as a factor.

        A norm that scales by ``1 + weight`` has its neutral value at 0, where a gain has it at 1.
        """
        return "other" if self.is_nonlinear or self.has_offset else "gain"

    def dims(self, which: Iterable[int] | None = None) -> frozenset[int]:
        """Return the parameter's dims that these dims of the tensor walk; by default all."""
        if which is None:
            return dims_of(self.axes)
        return dims_of([self.axes[d] for d in which if d < len(self.axes)])

    def seen(self, axes: Axes) -> "Source":
        """Return the same source in a tensor of other dims."""
        return replace(self, axes=axes)


@dataclass(frozen=True)
class Seen:
    """What a forward pass showed of one parameter."""

    layouts: tuple[Layout, ...]
    """The layouts of its uses: more than one if they contradict each other, none if it was not followed."""
    operations: tuple[str, ...]
    """The operations that consume it."""
    is_looked_up: bool = False
    """Whether rows of it were looked up, or it was added to data."""
    is_scored: bool = False
    """Whether data was multiplied with every row after some rows had been looked up, as for logits."""
    meets_rows: bool = False
    """Whether rows that were looked up were multiplied with such rows, as in a factorisation."""
    is_layer: bool = False
    """Whether data went through it."""
    ends: tuple[Layout, ...] = ()
    """Its layouts where data went through it, and through no layer after that."""

    @property
    def how(self) -> str:
        """The operations in a few words."""
        return " and ".join(dict.fromkeys(self.operations)) or "never used"


def summarised(sightings: Sequence[Sighting], shape: Sequence[int]) -> Seen:
    """Return what all sightings of a parameter amount to; strong ones outweigh weak ones.

    Example:
        >>> from nero.layout.observation.sightings import Sighting, summarised
        >>> summarised([Sighting("neuron", frozenset({1}), "mm")], (3, 4)).layouts
        (Layout(role='neuron', neuron_dims=(0,), num_groups=1),)
    """
    strong = [each for each in sightings if not each.is_weak] or list(sightings)
    followed = [each for each in strong if each.role is not None] or strong
    layouts: list[Layout] = []
    for each in followed:
        layout = each.layout(len(shape))
        if layout is not None and not any(_agree(layout, known) for known in layouts):
            layouts.append(layout)
    lookups = [each for each in followed if each.looked_up_at is not None]
    ends = [each.layout(len(shape)) for each in followed if each.is_end]
    return Seen(
        tuple(layouts),
        tuple(each.operation for each in followed),
        is_looked_up=any(each.role == "embedding" for each in followed),
        is_scored=any(_is_scored(each, lookup) for each in followed for lookup in lookups),
        meets_rows=any(each.meets_rows for each in lookups),
        is_layer=any(each.place for each in followed),
        ends=tuple(layout for layout in ends if layout is not None),
    )


def _is_scored(layer: Sighting, lookup: Sighting) -> bool:
    """Whether a layer gives one number per row of the table, and only after the table was read.

    A codebook is scored to find the row that is read then; it is no output.
    """
    is_later = layer.place > (lookup.looked_up_at or 0)
    return layer.looked_up_at is None and is_later and layer.fan_in == lookup.fan_in


def _agree(layout: Layout, other: Layout) -> bool:
    # Two uses without fan-in agree: a factor in one place may be a term in another.
    if layout.neuron_dims is None or other.neuron_dims is None:
        return layout.neuron_dims is other.neuron_dims
    return layout.has_dims_of(other)
