"""Options that are invalid, unknown or without effect."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from nero.core.warn import warn_user
from nero.layout import Overrides
from nero.layout.groups import override_pairs


def refuse_unknown(
    unknown: Mapping[str, Any], options: Iterable[str], hints: Mapping[str, str], optimizer: str
) -> None:
    """Raise if there are options that the optimizer does not have, and suggest what to use instead."""
    for name in unknown:
        near = difflib.get_close_matches(name, [*options], n=1)
        hint = hints.get(name) or (f"did you mean {near[0]}?" if near else "")
        hint = hint or f"the options are {', '.join(options)}"
        raise TypeError(f"{optimizer} got an unexpected keyword argument {name!r}: {hint}")


def check_overrides(overrides: Overrides, options: Mapping[str, Any]) -> None:
    """Raise if an override sets an option that the optimizer does not have."""
    for pattern, chosen in override_pairs(overrides):
        unknown = sorted(set(chosen) - set(options))
        if unknown:
            raise TypeError(
                f"override {pattern!r} sets {', '.join(unknown)}, which does not exist; the options are "
                f"{', '.join(sorted(options))}"
            )


def warn_ignored(group: Mapping[str, Any], hints: Mapping[str, str]) -> None:
    """Warn about options of other optimizers in a param group."""
    for name in hints.keys() & group.keys():
        warn_user(f"{name} in a param group has no effect: {hints[name]}")


def warn_no_foreach(foreach: bool | None) -> None:
    """Warn that ``foreach=True`` has no effect."""
    if foreach:
        warn_user(
            "foreach=True has no effect: there is no foreach implementation; leave foreach=None"
        )
