"""What ``--set`` may say: the kinds of values that options of a recipe take, and their names in paths."""

import math
from typing import Any
from urllib.parse import quote

from nero_lab.engine.errors import ConfigError
from nero_lab.engine.task import Task

_KINDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    type(None): "None",
}


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


def _is_of(value: Any, kinds: set[type]) -> bool:
    return type(value) in kinds or (type(value) is int and float in kinds)


def in_file_name(value: Any) -> str:
    """Write a value so that it is part of one file name, whatever it is.

    Example:
        >>> in_file_name(0.5), in_file_name("ALE/Pong-v5")
        ('0.5', 'ALE%2FPong-v5')
    """
    return quote(str(value), safe="(),=+")
