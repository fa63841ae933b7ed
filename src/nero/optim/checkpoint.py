"""From the groups and states of a checkpoint to those of the optimiser that loads it."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nero.core.neurons import LAYOUT_KEYS
from nero.core.spec import StateSpec
from nero.core.sphere import as_constraint

Group = dict[str, Any]
INITIAL_NORMS = "initial_norms"
"""Where `Balanced` keeps, in a group, the norms of its parameters' neurons, one tensor per parameter."""


def matched_by_name(saved: Sequence[Group], present: Sequence[Group]) -> list[Group]:
    """Sort the saved groups as the present ones are, by the names of their parameters.

    A group takes the options that its first parameter was saved with. Where a side has no names, or
    their names differ, groups come back as they are, to be matched by position.

    Example:
        >>> from nero.optim.checkpoint import matched_by_name
        >>> saved = [{"params": [0, 1], "param_names": ["a", "b"], "lr": 0.1}]
        >>> present = [{"params": [], "param_names": [name]} for name in ("b", "a")]
        >>> [group["params"] for group in matched_by_name(saved, present)]
        [[1], [0]]
    """
    if not all("param_names" in group for group in (*saved, *present)):
        return [*saved]
    if any(len(group["params"]) != len(group["param_names"]) for group in saved):
        return [*saved]
    owners = {name: group for group in saved for name in group["param_names"]}
    names = [group["param_names"] for group in present]
    if {name for each in names for name in each} != set(owners) or not all(names):
        return [*saved]
    matched = []
    for each in names:
        group = {**owners[each[0]], "param_names": each}
        for key in {"params", INITIAL_NORMS} & group.keys():
            group[key] = [_value_of(name, key, owners[name]) for name in each]
        matched.append(group)
    return matched


def named_by_order(saved: Sequence[Group], names: Sequence[str]) -> Sequence[Group]:
    """Give the parameters of one group the names of a model's, which come in the same order.

    Example:
        >>> from nero.optim.checkpoint import named_by_order
        >>> named_by_order([{"params": [0, 1]}], ["weight", "bias"])[0]["param_names"]
        ['weight', 'bias']
    """
    if len(saved) != 1 or "param_names" in saved[0] or len(saved[0]["params"]) != len(names):
        return saved
    return [{**saved[0], "param_names": [*names]}]


def _value_of(name: str, key: str, group: Group) -> Any:
    values = group.get(key)
    return None if values is None else values[group["param_names"].index(name)]


def merged_group(present: Group, saved: Group) -> Group:
    """Return a saved group with the present layout, and with present options where it has none."""
    own = {key: value for key, value in present.items() if key not in ("params", "param_names")}
    layout = {key: own[key] for key in LAYOUT_KEYS}
    merged = {**own, **saved, **layout}
    if "constraint" in own and as_constraint(merged["constraint"]) == own["constraint"]:
        # The same object, by which an optimiser knows that nobody chose it.
        merged["constraint"] = own["constraint"]
    return merged


def restored_state(
    fresh: dict[str, Tensor],
    saved: Mapping[str, Any],
    specs: Mapping[str, StateSpec],
    name: str,
    optimizer: type,
) -> dict[str, Tensor]:
    """Give fresh state the saved values, in its own dtypes."""
    restored = dict(fresh)
    for key, tensor in fresh.items():
        # torch's flattened checkpoints have an empty dict for what was not saved.
        if key not in saved or isinstance(saved[key], dict):
            if not specs[key].is_required:
                continue
            raise ValueError(
                f"{name}: the checkpoint has no {key} for it, only {sorted(saved)}; is it the "
                f"checkpoint of another optimizer than {optimizer.__name__}?"
            )
        value = torch.as_tensor(saved[key])
        if value.shape != tensor.shape:
            raise ValueError(
                f"{name}: the checkpoint's {key} has shape {tuple(value.shape)}, but this "
                f"model's layout needs shape {tuple(tensor.shape)}"
            )
        restored[key] = value.detach().to(tensor.device, tensor.dtype, copy=True)
    return restored
