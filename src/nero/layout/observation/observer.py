"""Follow every parameter through a forward pass, operation by operation.

Torch hands each operation to `Observer` before it runs. What the operation does to the parameters inside
its inputs is in `nero.layout.observation.operations`; here is what all of them share: which parameters a
tensor holds, whether it holds data, and what has been seen so far.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakIdKeyDictionary, WeakIdRef

from nero.core.neurons import Role
from nero.layout.observation.axes import axes_of, dims_of
from nero.layout.observation.known import KnownValues
from nero.layout.observation.sightings import Sighting, Source


class Origin(NamedTuple):
    """What a tensor is made of."""

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

    def arg(self, place: int, key: str, default: Any = None) -> Any:
        """Return an argument, however it was given."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(key, default)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among the arguments."""
        return tensors_in((self.args, self.kwargs))

    @property
    def result(self) -> Tensor:
        """The first tensor that came out."""
        return tensors_in(self.out)[0]


class Observer(TorchDispatchMode):
    """Watches operations, and notes how each parameter meets data.

    Args:
        params: for every name the tensors that stand for this parameter.
    """

    def __init__(self, params: Mapping[str, Sequence[Tensor]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sightings: dict[str, list[Sighting]] = {name: [] for name in params}
        self.num_layers = 0
        """How often data went through a layer."""
        self.invented: Counter[str] = Counter()
        """Operations whose outcome depends on values, which do not exist: how often one was invented."""
        self.known = KnownValues()
        self._ends: Any = WeakIdKeyDictionary(ref_type=WeakIdRef)
        """For tensors, the layers whose outcome is in them and went through no other since."""
        self._new_ends: list[Sighting] = []
        self._origins: Any = WeakIdKeyDictionary(ref_type=WeakIdRef)
        self._ranks = {name: len(dims_of(axes_of(t[0].shape))) for name, t in params.items()}
        for name, tensors in params.items():
            for tensor in tensors:
                self._origins[tensor] = Origin((Source(name, axes_of(tensor.shape)),))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, and follow the parameters that go into it."""
        from nero.layout.observation import operations
        from nero.layout.observation.invented import invent

        kwargs = kwargs or {}
        if func._schema.is_mutable:
            args, kwargs = tree_map_only(Tensor, self._fake, (args, kwargs))
        name = func.overloadpacket.__name__
        name = name if name.endswith("__") else name.rstrip("_")
        known = self.known.outcome(func, name, args, kwargs)
        out = invent(self, func, name, args, kwargs, known)
        if out is None:
            out = func(*args, **kwargs)
        if known is not None:
            self.known.put(out, known)
        if func.namespace == "prim" or not tensors_in(out):
            return out  # a question about a tensor, not a use of it
        call = Call(func, name, args, kwargs, out)
        before = [end for tensor in call.tensors for end in self._ends.get(tensor, ())]
        self._new_ends = []
        origins = [self.origin(tensor) for tensor in call.tensors]
        if any(origin.sources for origin in origins):
            operations.follow(self, call, any(origin.is_data for origin in origins))
        elif any(origin.is_data for origin in origins):
            self.mark(out, (), is_data=True)
        self._pass_on(out, before)
        return out

    def _fake(self, tensor: Tensor) -> Tensor:
        """Return a stand-in for a tensor of the user's, which an operation is about to write to."""
        if isinstance(tensor, FakeTensor) or tensor.is_meta:
            return tensor
        fake = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
        )
        self._origins[fake] = self.origin(tensor)
        return fake

    def _pass_on(self, out: Any, before: Iterable[Sighting]) -> None:
        """Note which layers the outcome of an operation comes from, apart from those with others after."""
        ends = {id(end): end for end in (*before, *self._new_ends) if end.is_end}
        if ends:
            for tensor in tensors_in(out):
                self._ends[tensor] = tuple(ends.values())

    def origin(self, tensor: object) -> Origin:
        """Return what a tensor is made of; nothing, if it is none or a constant."""
        return self._origins.get(tensor) or Origin() if isinstance(tensor, Tensor) else Origin()

    def sources(self, tensor: object) -> tuple[Source, ...]:
        """Return the parameters inside a tensor."""
        return self.origin(tensor).sources

    def rank(self, source: Source) -> int:
        """Return how many dims of the parameter are longer than one."""
        return self._ranks[source.name]

    def is_constant(self, tensor: object) -> bool:
        """Whether a tensor holds neither data nor parameters, but perhaps a statistic of one."""
        origin = self.origin(tensor)
        return not origin.is_data and not any(source.dims() for source in origin.sources)

    def mark(self, out: Any, sources: Iterable[Source], *, is_data: bool) -> None:
        """Note what the outcome of an operation is made of."""
        # Which of its dims are one vector may have been settled elsewhere; then there is nothing to follow.
        open_ones = tuple(s for s in sources if s.sighting is None or not s.sighting.is_settled)
        for tensor in tensors_in(out):
            self._origins[tensor] = Origin(open_ones, is_data)

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
        """Note a sighting, or settle the one that the source is still waiting to settle."""
        sighting = source.sighting
        if sighting is None:
            sighting = Sighting(role, fan_in, operation, num_groups, is_settled, is_weak)
            self.sightings[source.name].append(sighting)
        elif not sighting.is_settled:
            sighting.role, sighting.fan_in, sighting.operation = role, fan_in, operation
            sighting.num_groups, sighting.is_settled = num_groups, is_settled
        return sighting

    def see_layer(self, source: Source, sighting: Sighting, data: object) -> None:
        """Note that data went through a layer whose weight this is, if it was data."""
        if source.stage in ("weight", "scaled") and self.origin(data).is_data:
            self.num_layers += 1
            sighting.place = self.num_layers
            self._end_in(sighting, data)

    def see_score(self, sighting: Sighting, factor: str | None, data: object) -> None:
        """Note that gathered rows were multiplied with data, or with other such rows, and added up."""
        if factor is not None:
            sighting.meets_rows = sighting.meets_rows or factor == "rows"
            self._end_in(sighting, data)

    def _end_in(self, sighting: Sighting, data: object) -> None:
        """Note that data has gone through a layer: it follows those that the data has come from."""
        for end in self._ends.get(data, ()):
            end.is_end = False
        sighting.is_end = True
        self._new_ends.append(sighting)

    def factor(self, tensor: object) -> Literal["data", "rows"] | None:
        """Return what gathered rows meet in a tensor: data, if so rows of a table, or neither."""
        if not self.origin(tensor).is_data:
            return None
        return "rows" if any(s.stage == "row" for s in self.sources(tensor)) else "data"

    def see_data_through(self, tensor: object) -> None:
        """Note that data goes through a layer whose weight this is: what made it were no tokens."""
        for source in self.sources(tensor):
            if source.stage == "token" and source.sighting is not None:
                source.sighting.role, source.sighting.is_settled = "neuron", True

    def see_elementwise(self, tensor: object, role: Role, operation: str) -> None:
        """Note that an operation takes a tensor as gain or bias."""
        for source in self.sources(tensor):
            if source.stage in ("weight", "row"):
                self.see(source, source.factor_role if role == "gain" else role, operation)

    def join(self, source: Source, operation: str) -> Source:
        """Let a parameter become part of the data; the first contraction will show its vectors."""
        if source.stage in ("token", "data", "scaled"):
            return source
        sighting = source.sighting or self.see(source, None, operation, is_settled=False)
        return replace(source, stage="data", sighting=sighting)


def tensors_in(tree: Any) -> list[Tensor]:
    """Return the tensors in nested containers."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
