"""Everything recorded while following parameters through a forward pass.

The notes say which parameters each tensor contains and whether it contains data, and list every sighting so
far. They are all that the handlers in `contractions`, `functions` and `movements` read and write.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary, WeakIdRef

from nero.core.neurons import Role
from nero.layout.observation.axes import axes_of, dims_of
from nero.layout.observation.sightings import Sighting, Source


class Origin(NamedTuple):
    """The contents of a tensor."""

    sources: tuple[Source, ...] = ()
    is_data: bool = False
    """Whether it depends on the example."""


class Call(NamedTuple):
    """One operation that has run."""

    func: Any
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    out: Any
    is_data: bool
    """Whether any argument depends on the example."""

    def arg(self, position: int, key: str, default: Any = None) -> Any:
        """Return an argument, positional or by keyword."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(key, default)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among the arguments."""
        return tensors_in((self.args, self.kwargs))

    @property
    def result(self) -> Tensor:
        """The first tensor in the output."""
        return tensors_in(self.out)[0]


class Notes:
    """How each parameter has met data so far.

    Args:
        params: the tensors that stand for each parameter, by its name.
    """

    def __init__(self, params: Mapping[str, Sequence[Tensor]]) -> None:
        self.sightings: dict[str, list[Sighting]] = {name: [] for name in params}
        self.num_layers = 0
        """How many times data went through a layer."""
        self._ends: Any = WeakIdKeyDictionary(ref_type=WeakIdRef)
        """Maps tensors to the layers they come from, with no other layer in between."""
        self._new_ends: list[Sighting] = []
        self._origins: Any = WeakIdKeyDictionary(ref_type=WeakIdRef)
        self._ranks = {name: len(dims_of(axes_of(t[0].shape))) for name, t in params.items()}
        for name, tensors in params.items():
            for tensor in tensors:
                self._origins[tensor] = Origin((Source(name, axes_of(tensor.shape)),))

    def origin(self, tensor: object) -> Origin:
        """Return the contents of a tensor; empty for constants and other objects."""
        return self._origins.get(tensor) or Origin() if isinstance(tensor, Tensor) else Origin()

    def sources(self, tensor: object) -> tuple[Source, ...]:
        """Return the parameters inside a tensor."""
        return self.origin(tensor).sources

    def rank(self, source: Source) -> int:
        """Return how many dims of the parameter are longer than one."""
        return self._ranks[source.name]

    def is_constant(self, tensor: object) -> bool:
        """Whether a tensor contains neither data nor parameters; a parameter's statistics are allowed."""
        origin = self.origin(tensor)
        return not origin.is_data and not any(source.dims() for source in origin.sources)

    def factor(self, tensor: object) -> Literal["data", "rows"] | None:
        """Return what a tensor is as a factor of gathered rows: rows of a table, other data, or neither."""
        if not self.origin(tensor).is_data:
            return None
        return "rows" if any(s.stage == "row" for s in self.sources(tensor)) else "data"

    def has_rows(self, tensor: object) -> bool:
        """Whether a tensor has rows of a table that have been added to data or concatenated with it."""
        found = (s.sighting for s in self.sources(tensor) if s.stage == "data")
        return any(sighting and sighting.looked_up_at is not None for sighting in found)

    def mark(self, out: Any, sources: Iterable[Source], *, is_data: bool) -> None:
        """Note the contents of an operation's result."""
        # Sources whose sighting is already settled need not be followed any further.
        unsettled = tuple(s for s in sources if s.sighting is None or not s.sighting.is_settled)
        for tensor in tensors_in(out):
            self._origins[tensor] = Origin(unsettled, is_data)

    def copy_origin(self, tensor: Tensor, copy: Tensor) -> None:
        """Note that a copy has the contents of a tensor."""
        self._origins[copy] = self.origin(tensor)

    def see(
        self,
        source: Source,
        role: Role | None,
        operation: str,
        fan_in: frozenset[int] = frozenset(),
        *,
        num_groups: int = 1,
        is_settled: bool = True,
        is_weak: bool = False,
    ) -> Sighting:
        """Note a sighting, or settle the source's open one."""
        sighting = source.sighting
        if sighting is None:
            sighting = Sighting(role, fan_in, operation, num_groups, is_settled, is_weak)
            self.sightings[source.name].append(sighting)
        elif not sighting.is_settled:
            sighting.role, sighting.fan_in, sighting.operation = role, fan_in, operation
            sighting.num_groups, sighting.is_settled = num_groups, is_settled
        return sighting

    def see_elementwise(self, tensor: object, role: Role, operation: str) -> None:
        """Note that an operation uses a tensor as a gain or bias."""
        for source in self.sources(tensor):
            if source.stage in ("weight", "row"):
                self.see(source, source.factor_role if role == "gain" else role, operation)

    def see_layer(self, source: Source, sighting: Sighting, data: object) -> None:
        """Note that ``data`` went through a layer with this weight, if it is data."""
        if source.stage in ("weight", "scaled") and self.origin(data).is_data:
            self.num_layers += 1
            sighting.layer_number = self.num_layers
            self._end_in(sighting, data)

    def see_score(self, sighting: Sighting, factor: str | None, data: object) -> None:
        """Note that gathered rows were multiplied by data or by other gathered rows, and summed."""
        if factor is not None:
            sighting.meets_rows = sighting.meets_rows or factor == "rows"
            self._end_in(sighting, data)

    def see_data_through(self, tensor: object) -> None:
        """Note that data goes through a layer with this weight, so its sources are not tokens."""
        for source in self.sources(tensor):
            if source.stage == "token" and source.sighting is not None:
                source.sighting.role, source.sighting.is_settled = "neuron", True

    def join(self, source: Source, operation: str) -> Source:
        """Make a parameter part of the data; the first contraction will show its vectors."""
        if source.stage in ("token", "data", "scaled"):
            return source
        sighting = source.sighting or self.see(source, None, operation, is_settled=False)
        return replace(source, stage="data", sighting=sighting)

    def _end_in(self, sighting: Sighting, data: object) -> None:
        """Note that data has gone through a layer, so the layers it came from are no longer last."""
        for end in self._ends.get(data, ()):
            end.is_end = False
        sighting.is_end = True
        self._new_ends.append(sighting)

    def pass_ends_on(self, call: Call) -> None:
        """Note which layers an operation's result comes from, except those followed by another layer."""
        before = [end for tensor in call.tensors for end in self._ends.get(tensor, ())]
        ends = {id(end): end for end in (*before, *self._new_ends) if end.is_end}
        self._new_ends = []
        if ends:
            for tensor in tensors_in(call.out):
                self._ends[tensor] = tuple(ends.values())


Handler: TypeAlias = Callable[[Notes, Call], None]
"""Follows parameters from a call's arguments into its result."""


def tensors_in(tree: Any) -> list[Tensor]:
    """Return the tensors in nested containers."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
