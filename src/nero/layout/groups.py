"""Sort a model's parameters into the param groups that every optimiser here understands."""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from torch import nn

from nero.core.neurons import LAYOUT_KEYS, LayoutError, LayoutWarning, layout_from_options
from nero.core.warn import warn_user
from nero.layout.authority import infer_layouts
from nero.layout.named import NamedLayout

Overrides: TypeAlias = Sequence[tuple[str, Mapping[str, Any]]] | Mapping[str, Mapping[str, Any]]
"""Ordered pairs of a name pattern, or of a role, and group options."""

MOST_NAMES = 4
"""How many guessed parameters a warning names."""

_ROLE = "role="  # begins a pattern that is none of names


def param_groups(
    model: nn.Module, *, overrides: Overrides = (), example: Any = None
) -> list[dict[str, Any]]:
    """Sort the parameters of ``model`` into groups of one layout each, ready for an optimiser.

    Works with any torch optimiser, which ignores the keys it does not know. Parameters come with
    their names, so checkpoints and messages carry them.

    Args:
        model: the model.
        overrides: ordered pairs of a name pattern (``*`` and ``?`` match), or ``"role=embedding"`` and the
            like, and group options; the first match counts. ``"role=output"`` are the last layer and
            embeddings that serve as one, ``"role=hidden"`` all other neurons. Options are layout keys
            (``role``, ``neuron_dims``, ``num_groups``) or anything the optimiser takes per group (``lr``,
            ``constraint``, ...).
        example: what the model is called with, as in [`observe`][nero.layout.observation.observe]: one
            forward pass without values finds the neurons of modules that nobody registered.

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
    """Sort what `resolve` found into param groups."""
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    warn_of_guesses([found for found, _, _ in resolved])
    for found, index, options in resolved:
        key = (found.layout, index)
        group = groups.setdefault(key, {"params": [], **found.layout.as_options(), **options})
        group["params"].append((found.name, found.param))
    return list(groups.values())


def warn_of_guesses(found: Sequence[NamedLayout]) -> None:
    """Say which neurons only a name or a shape speaks for, and of which elements it is doubtful."""
    guessed = [
        each
        for each in found
        if each.is_guess and (each.layout.neuron_dims is not None or each.is_doubtful)
    ]
    if guessed:
        names = [f"`{each.name}`" for each in guessed[:MOST_NAMES]]
        more = f" and {len(guessed) - len(names)} more" if len(guessed) > len(names) else ""
        warn_user(
            f"the neurons of {', '.join(names)}{more} are guessed ({guessed[0].reason}); pass a batch as "
            "example=, register_layout the class, or set neuron_dims in overrides",
            LayoutWarning,
        )


class Choice(NamedTuple):
    """A parameter as overrides left it."""

    found: NamedLayout
    key: tuple[int | None, bool]
    """Which override matched, and whether it has options of output layers: tells groups apart."""
    options: dict[str, Any]
    """Options that are not of its layout."""


def resolve(
    model: nn.Module,
    overrides: Overrides,
    example: Any = None,
    of_outputs: Mapping[str, Any] = MappingProxyType({}),
) -> list[Choice]:
    """Find the layout of every parameter, and apply ``overrides``.

    Args:
        model: the model.
        overrides: as in `param_groups`.
        example: as in `param_groups`.
        of_outputs: options of output layers; overrides win over them.
    """
    overrides = override_pairs(overrides)
    resolved: list[Choice] = []
    for found in infer_layouts(model, example):
        index = _first_match(found, overrides)
        options: dict[str, Any] = {}
        if index is not None:
            found, options = _override(found, *overrides[index])
        if found.conflict:
            raise LayoutError(found.conflict)
        is_output = bool(of_outputs) and found.is_output
        if is_output:
            found = replace(found, reason=f"{found.reason}; an output layer")
            options = {**of_outputs, **options}
        resolved.append(Choice(found, (index, is_output), options))

    matched = {choice.key[0] for choice in resolved}
    for index, (pattern, _) in enumerate(overrides):
        if index not in matched:
            what = "role" if pattern.startswith(_ROLE) else "name"
            words = [
                word
                for found, _, _ in resolved
                for word in (_roles(found) if what == "role" else [found.name])
            ]
            raise LayoutError(
                f"override pattern {pattern!r} matches no parameter, or only parameters that an "
                f"earlier pattern took; the {what}s are: {', '.join(dict.fromkeys(words))}"
            )
    return resolved


def override_pairs(overrides: Overrides) -> list[tuple[str, Mapping[str, Any]]]:
    """Return overrides as a list of pairs; a mapping's order is that of its writing."""
    is_list = isinstance(overrides, Sequence) and not isinstance(overrides, str)
    pairs = list(overrides.items()) if isinstance(overrides, Mapping) else overrides
    if not isinstance(pairs, list) and not is_list:
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
    found: NamedLayout, overrides: Sequence[tuple[str, Mapping[str, Any]]]
) -> int | None:
    for index, (pattern, _) in enumerate(overrides):
        if pattern.startswith(_ROLE):
            if pattern.removeprefix(_ROLE) in _roles(found):
                return index
        elif any(fnmatch.fnmatchcase(name, pattern) for name in (found.name, *found.other_names)):
            return index
    return None


def _roles(found: NamedLayout) -> list[str]:
    """Return the roles by which overrides may call a parameter."""
    role = found.layout.role
    return [role, "output" if found.is_output else "hidden"] if role == "neuron" else [role]


def _override(
    found: NamedLayout, pattern: str, options: Mapping[str, Any]
) -> tuple[NamedLayout, dict[str, Any]]:
    layout_options = {k: v for k, v in options.items() if k in LAYOUT_KEYS}
    others = {k: v for k, v in options.items() if k not in LAYOUT_KEYS}
    if layout_options:
        if layout_options.keys() == {"num_groups"}:
            layout_options = {**found.layout.as_options(), **layout_options}
        try:
            layout = layout_from_options(layout_options, found.param.shape)
            layout.at(found.param.shape)
        except LayoutError as error:
            raise LayoutError(f"`{found.name}`: {error}") from error
        found = replace(
            found, layout=layout, reason=f"override {pattern!r}", conflict="", authority="override"
        )
    elif others:
        shown = ", ".join(f"{key}={value}" for key, value in others.items())
        found = replace(found, reason=f"{found.reason}; override {pattern!r}: {shown}")
    return found, others
