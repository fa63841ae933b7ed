"""Numbers as readable text and as JSON values."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def human_bytes(num: float) -> str:
    """Format a number of bytes with three digits.

    Example:
        >>> from nero.numbers import human_bytes
        >>> human_bytes(1292256)
        '1.29 MB'
    """
    unit = 0
    while num >= 999.5 and unit < len(_UNITS) - 1:
        num, unit = num / 1000, unit + 1
    return f"{num:.3g} {_UNITS[unit]}"


def json_values(value: Any) -> Any:
    """Convert ``value`` to JSON types: dataclasses become dicts, non-finite numbers ``None``.

    Example:
        >>> from nero.numbers import json_values
        >>> json_values({"angle": float("nan"), "quantiles": (0.1, 0.2)})
        {'angle': None, 'quantiles': [0.1, 0.2]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: json_values(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
