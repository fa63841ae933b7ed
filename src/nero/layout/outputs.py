"""Output layers: which parameters are one, and how options and overrides refer to them.

`with_outputs` decides. A parameter is an output layer for one of three reasons:

- It is an embedding that modules tie to a layer with neurons (`tie`), or that a forward pass uses as one
  (`use_as_output`).
- No layer follows it in the forward pass (`with_end`).
- It is the last registered layer with neurons, and no forward pass has reached it or shown a last layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from nero.core.neurons import EMBEDDING, Layout
from nero.layout.named import NamedLayout
from nero.layout.observation.sightings import Seen, same_neurons

IS_OUTPUT: Mapping[str, Any] = MappingProxyType({"is_output": True})
"""The option that marks output layers until their own options are resolved."""


def with_outputs(layouts: Sequence[NamedLayout]) -> list[NamedLayout]:
    """Decide which of a model's parameters are output layers."""
    layers = [named for named in layouts if named.layout.role == "neuron"]
    ends = {named.param for named in layers if named.is_end}
    last = max(layers, key=lambda named: named.registered_at, default=None)
    if last is not None and (not ends or last.is_end is None):
        ends.add(last.param)
    return [replace(named, is_output=named.is_tied or named.param in ends) for named in layouts]


def tie(named: NamedLayout, layout: Layout) -> NamedLayout:
    """Tie a parameter to another module's layout: an embedding and a layer make an output layer."""
    is_output = {named.layout.role, layout.role} == {"embedding", "neuron"}
    return _as_tied(named) if is_output else named


def with_end(named: NamedLayout, seen: Seen) -> NamedLayout:
    """Note whether a layer follows the parameter in a complete forward pass."""
    is_layer = seen.is_layer or seen.ends
    return replace(named, is_end=bool(seen.ends)) if is_layer else named


def use_as_output(named: NamedLayout, seen: Seen) -> str:
    """Describe how a complete forward pass uses a table as an output layer; empty if it does not."""
    is_table = seen.is_looked_up or named.layout.role == "embedding"
    if not is_table or named.is_tied:
        return ""
    if any(same_neurons(EMBEDDING, end, named.param.shape) for end in seen.ends):
        return "also the last layer"
    if seen.is_scored:
        return "also computes logits"
    return "multiplied with rows of a table" if seen.meets_rows else ""


def as_output(named: NamedLayout, use: str) -> NamedLayout:
    """Make a table an output layer if `use_as_output` has described such a use."""
    if not use:
        return named
    return replace(_as_tied(named), authority="observation", reason=f"{named.reason}; {use}")


def _as_tied(named: NamedLayout) -> NamedLayout:
    return replace(named, layout=replace(named.layout, role="neuron"), is_tied=True)


def override_roles(named: NamedLayout) -> list[str]:
    """Return the roles that overrides may use for a parameter."""
    role = named.layout.role
    return [role, "output" if named.is_output else "hidden"] if role == "neuron" else [role]


def without_mark(options: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return options without the mark for output layers, and whether they had it."""
    rest = {key: value for key, value in options.items() if key not in IS_OUTPUT}
    return rest, bool(options.get("is_output"))
