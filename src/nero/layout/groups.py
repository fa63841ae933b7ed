"""Sort a model's parameters into param groups, one per layout and override."""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from torch import nn

from nero.core.neurons import LAYOUT_KEYS, LayoutError, LayoutWarning, layout_from_options
from nero.core.warn import listed, warn_user
from nero.layout.infer import infer_layouts
from nero.layout.named import NamedLayout
from nero.layout.outputs import override_roles

Overrides: TypeAlias = Sequence[tuple[str, Mapping[str, Any]]] | Mapping[str, Mapping[str, Any]]
"""Ordered pairs of a name pattern or role, and group options."""

MAX_NAMES = 4
"""The maximum number of guessed parameters named in a warning."""

_ROLE = "role="  # the prefix of patterns that match roles, not names


def param_groups(
    model: nn.Module, *, overrides: Overrides = (), example: Any = None
) -> list[dict[str, Any]]:
    """Sort the parameters of ``model`` into param groups with one layout each.

    Works with any torch optimizer, since torch ignores unknown keys. Parameters keep their names, for
    checkpoints and messages.

    Args:
        model: the model.
        overrides: ordered pairs of a name pattern (``*`` and ``?`` match) or a role such as
            ``"role=embedding"``, and group options; the first match wins. ``"role=output"`` matches the
            output layers, including embeddings that serve as one, ``"role=hidden"`` all other neurons.
            Options are layout keys (``role``, ``neuron_dims``, ``num_groups``) or any group option of the
            optimizer (``lr``, ``constraint``, ...).
        example: the model's input, as in [`observe`][nero.layout.observation.observe]: one forward pass
            on fake tensors shows the neurons of unregistered modules.

    Raises:
        LayoutError: if a pattern matches nothing.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
        >>> for group in nero.param_groups(model, overrides=[("2.weight", {"lr": 0.001})]):
        ...     print(group["role"], [name for name, _ in group["params"]], group.get("lr"))
        neuron ['0.weight'] None
        bias ['0.bias', '1.bias', '2.bias'] None
        gain ['1.weight'] None
        neuron ['2.weight'] 0.001
    """
    return grouped(resolve(model, overrides, example))


def grouped(resolved: Sequence["Choice"]) -> list[dict[str, Any]]:
    """Sort resolved parameters into param groups."""
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    warn_of_guesses([named for named, _, _ in resolved])
    for named, index, options in resolved:
        key = (named.layout, index)
        group = groups.setdefault(key, {"params": [], **named.layout.as_options(), **options})
        group["params"].append((named.name, named.param))
    return list(groups.values())


def warn_of_guesses(layouts: Sequence[NamedLayout]) -> None:
    """Warn about guessed neurons, and parameters treated elementwise only for want of a layout."""
    guessed = [
        named
        for named in layouts
        if named.is_guess and (named.layout.neuron_dims is not None or named.is_doubtful)
    ]
    if guessed:
        names = listed((named.name for named in guessed), MAX_NAMES)
        warn_user(
            f"the neurons of {names} are guessed ({guessed[0].reason}); pass a batch as "
            "example=, register_layout the class, or set neuron_dims in overrides",
            LayoutWarning,
        )


class Choice(NamedTuple):
    """A parameter after overrides."""

    named: NamedLayout
    key: tuple[int | None, bool]
    """The index of the matching override, and whether the options for output layers apply."""
    options: dict[str, Any]
    """All options except the layout keys."""


def resolve(
    model: nn.Module,
    overrides: Overrides,
    example: Any = None,
    of_outputs: Mapping[str, Any] = MappingProxyType({}),
) -> list[Choice]:
    """Infer the layout of every parameter, and apply ``overrides``.

    Args:
        model: the model.
        overrides: as in `param_groups`.
        example: as in `param_groups`.
        of_outputs: options for output layers, weaker than overrides.
    """
    overrides = override_pairs(overrides)
    resolved: list[Choice] = []
    for named in infer_layouts(model, example):
        index = _first_match(named, overrides)
        options: dict[str, Any] = {}
        if index is not None:
            named, options = _override(named, *overrides[index])
        if named.conflict:
            raise LayoutError(named.conflict)
        is_output = bool(of_outputs) and named.is_output
        if is_output:
            named = replace(named, reason=f"{named.reason}; an output layer")
            options = {**of_outputs, **options}
        resolved.append(Choice(named, (index, is_output), options))

    matched = {choice.key[0] for choice in resolved}
    for index, (pattern, _) in enumerate(overrides):
        if index not in matched:
            kind = "role" if pattern.startswith(_ROLE) else "name"
            words = [
                word
                for named, _, _ in resolved
                for word in (override_roles(named) if kind == "role" else [named.name])
            ]
            raise LayoutError(
                f"override pattern {pattern!r} matches no parameter, or only parameters already matched "
                f"by an earlier pattern; the {kind}s are: {', '.join(dict.fromkeys(words))}"
            )
    return resolved


def override_pairs(overrides: Overrides) -> list[tuple[str, Mapping[str, Any]]]:
    """Return overrides as a list of pairs; a mapping keeps its order."""
    pairs = list(overrides.items()) if isinstance(overrides, Mapping) else overrides
    if not isinstance(pairs, Sequence) or isinstance(pairs, str):
        raise TypeError(f"overrides must be pairs of a pattern and options, not {overrides!r}")
    for pair in pairs:
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not is_pair or not isinstance(pair[0], str) or not isinstance(pair[1], Mapping):
            raise TypeError(
                "overrides must be pairs such as ('*.bias', {'lr': 0.001}); this override is not one: "
                f"{pair!r}"
            )
    return [(pattern, options) for pattern, options in pairs]


def _first_match(
    named: NamedLayout, overrides: Sequence[tuple[str, Mapping[str, Any]]]
) -> int | None:
    for index, (pattern, _) in enumerate(overrides):
        if pattern.startswith(_ROLE):
            if pattern.removeprefix(_ROLE) in override_roles(named):
                return index
        elif any(fnmatch.fnmatchcase(name, pattern) for name in (named.name, *named.other_names)):
            return index
    return None


def _override(
    named: NamedLayout, pattern: str, options: Mapping[str, Any]
) -> tuple[NamedLayout, dict[str, Any]]:
    layout_options = {k: v for k, v in options.items() if k in LAYOUT_KEYS}
    others = {k: v for k, v in options.items() if k not in LAYOUT_KEYS}
    if layout_options:
        if layout_options.keys() == {"num_groups"}:
            layout_options = {**named.layout.as_options(), **layout_options}
        try:
            layout = layout_from_options(layout_options, named.param.shape)
            layout.at(named.param.shape)
        except LayoutError as error:
            raise LayoutError(f"`{named.name}`: {error}") from error
        named = replace(
            named, layout=layout, reason=f"override {pattern!r}", conflict="", authority="override"
        )
    elif others:
        shown = ", ".join(f"{key}={value}" for key, value in others.items())
        named = replace(named, reason=f"{named.reason}; override {pattern!r}: {shown}")
    return named, others
