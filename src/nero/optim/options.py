"""Where an option comes from: default < preset < role < output < given < override."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch import Tensor

from nero.checks.advice import warn_of_other_preset
from nero.core.presets import CHOSEN, find_preset, resolve_options
from nero.core.spec import Hyper
from nero.layout.outputs import IS_OUTPUT, without_mark
from nero.optim.rule import Group


def output_mark(defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the mark of output layers' groups, if the preset has separate options for them."""
    if "preset" not in defaults:
        return MappingProxyType({})
    has_own = find_preset(defaults["preset"]).marks_outputs(defaults[CHOSEN])
    return IS_OUTPUT if has_own else MappingProxyType({})


def completed(group: Group, defaults: Mapping[str, Any]) -> Group:
    """Return a new group with all options resolved from its role and the user's choices."""
    group, is_output = without_mark(group)
    if "preset" not in defaults:
        return group
    preset = defaults["preset"]
    if group.get("preset", preset) != preset:
        raise ValueError(
            f"a group has preset={group['preset']!r}, but presets apply to the whole "
            f"optimizer, which has {preset!r}; set the group's options individually"
        )
    given = {name: defaults[name] for name in defaults[CHOSEN]}
    own = {name: group[name] for name in ("lr", *Hyper._fields) if group.get(name) is not None}
    options = resolve_options(preset, given, role=group.get("role"), is_output=is_output, own=own)
    left = {name: value for name, value in group.items() if name not in options}
    return {**left, **options, CHOSEN: tuple(sorted({*given, *own}))}


def adopt_(defaults: dict[str, Any], groups: Sequence[Group]) -> None:
    """Make the options of a loaded checkpoint the defaults for groups added later."""
    presets = {group["preset"] for group in groups}
    if len(presets) != 1:
        return
    (preset,) = presets
    if preset != defaults["preset"]:
        warn_of_other_preset(preset, defaults["preset"])
    given = {}
    for name in [*Hyper._fields, "lr"]:
        key = "initial_lr" if name == "lr" and "initial_lr" in groups[0] else name
        values = [group.get(key) for group in groups if name in group[CHOSEN]]
        if len(values) == len(groups) and all(value == values[0] for value in values):
            given[name] = values[0].clone() if isinstance(values[0], Tensor) else values[0]
    defaults.update(resolve_options(preset, given), preset=preset, chosen=(*sorted(given),))
