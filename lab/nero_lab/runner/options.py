"""What ``--set`` may say: the kinds of values that options of a recipe take, and their names in paths."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from nero_lab.engine.errors import ConfigError
from nero_lab.engine.schedules import parse_schedule
from nero_lab.engine.task import Recipe, Task

_KINDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a string",
    type(None): "None",
}

SETTINGS = ("batch_size", "clip_norm", "precision", "schedule")
"""What ``--set`` can change of a recipe besides its options."""


def check_variant(changes: Mapping[str, Any], task: Task) -> None:
    """Refuse a variant that sets what no recipe of the task has; it may set ``epochs``, too.

    Raises:
        ConfigError: as ``check_option`` does.
    """
    for name, value in changes.items():
        if name != "epochs":
            check_option(name, value, task)


def check_option(name: str, value: Any, task: Task) -> Any:
    """Return a value of ``--set`` as records have it.

    Raises:
        ConfigError: if there is no such option, or it cannot have this value.
    """
    known = {name: None for recipe in task.recipes.values() for name in recipe.options}
    if name in known:
        check_kind(name, value, task)
    elif name not in SETTINGS:
        raise ConfigError(f"unknown option {name!r}; choose from: {', '.join([*known, *SETTINGS])}")
    elif name == "schedule":
        return repr(parse_schedule(str(value))).replace(" ", "")
    elif name == "precision" and value not in ("float32", "bfloat16"):
        raise ConfigError(f"precision must be float32 or bfloat16, not {value!r}")
    elif name == "batch_size" and (type(value) is not int or value < 1):
        raise ConfigError(f"batch_size must be a positive whole number, not {value!r}")
    elif name == "clip_norm" and value is not None and not _is_positive(value):
        raise ConfigError(f"clip_norm must be a positive number or None, not {value!r}")
    return value


def applied(options: Mapping[str, Any], recipe: Recipe) -> Recipe:
    """Return a recipe with the changes of ``--set``."""
    changes = {name: value for name, value in options.items() if name not in recipe.options}
    if "schedule" in changes:
        changes["schedule"] = parse_schedule(str(changes["schedule"]))
    own = {name: value for name, value in options.items() if name in recipe.options}
    return replace(recipe, options={**recipe.options, **own}, **changes)


def check_kind(name: str, value: Any, task: Task) -> None:
    """Refuse a value of another kind than the recipes and variants of a task have for an option.

    An option that is None in all of them takes anything. No option is a negative number.

    Raises:
        ConfigError: if the value cannot be meant.
    """
    settings = [*(recipe.options for recipe in task.recipes.values()), *task.variants.values()]
    known = {type(options[name]): None for options in settings if name in options}  # in order
    if not _is_of(value, set(known)) and set(known) != {type(None)}:
        words = " or ".join(_KINDS.get(kind, kind.__name__) for kind in known)
        raise ConfigError(f"{name} of {task.name} must be {words}, not {value!r}")
    if isinstance(value, (int, float)) and not 0 <= value < math.inf:
        raise ConfigError(f"{name} must be finite and not negative, not {value}")


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and value is not True and 0 < value < math.inf


def _is_of(value: Any, kinds: set[type]) -> bool:
    return type(value) in kinds or (type(value) is int and float in kinds)


def in_file_name(value: Any) -> str:
    """Write a value so that it is part of one file name, whatever it is.

    Example:
        >>> in_file_name(0.5), in_file_name("ALE/Pong-v5")
        ('0.5', 'ALE%2FPong-v5')
    """
    return quote(str(value), safe="(),=+")
