"""How messages refer to a parameter."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor


def name_at(groups: Sequence[Mapping[str, Any]], index: int) -> str:
    """Return how messages refer to a parameter, given its position among all parameters."""
    for group in groups:
        if index < len(group["params"]):
            return param_name(group, index)
        index -= len(group["params"])
    raise IndexError(index)


def named_params(group: Mapping[str, Any]) -> list[tuple[Tensor, str]]:
    """Return the parameters of a group, each with the name that messages use."""
    return [(param, param_name(group, i)) for i, param in enumerate(group["params"])]


def param_name(group: Mapping[str, Any], place: int) -> str:
    """Return how messages refer to a group's parameter, given its index."""
    names = group.get("param_names")
    if names is not None:
        return f"`{names[place]}`"
    return f"parameter {place} of shape {tuple(group['params'][place].shape)}"


def named_like(groups: Sequence[Mapping[str, Any]], group: Any) -> Any:
    """Return a new group with names if the others have them: torch requires names in all groups or none."""
    is_group = isinstance(group, Mapping) and isinstance(group["params"], list)
    if not is_group or not groups or "param_names" not in groups[0]:
        return group
    named = [
        item if isinstance(item, tuple) else (f"group {len(groups)}, parameter {place}", item)
        for place, item in enumerate(group["params"])
    ]
    return {**group, "params": named}
