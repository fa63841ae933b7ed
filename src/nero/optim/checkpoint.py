"""Match a checkpoint's groups and states with those of the optimizer that loads it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from nero.checks.checkpoints import (
    HOW_TO_PASS,
    check_groups,
    check_origin,
    check_state_dict,
    some,
    warn_of_lost_options,
    warn_of_restart,
    warn_of_roles,
)
from nero.checks.names import named_params
from nero.core.neurons import LAYOUT_KEYS
from nero.core.sharding import is_sharded
from nero.core.spec import Hyper, StateSpec
from nero.hold import hold_in
from nero.optim.originals import as_loaded
from nero.optim.rule import Group, Rule, State

INITIAL_NORMS = "initial_norms"
"""The group key under which `Balanced` keeps neuron norms, one tensor per parameter."""


@contextmanager
def loading(optimizer: Any, names: Sequence[str]) -> Iterator[None]:
    """Make torch's ``load_state_dict`` match parameters by name and keep the state's dtype.

    Everything is built before anything changes, so loading a checkpoint that does not fit changes nothing.

    Args:
        optimizer: the `RelativeOptimizer` that loads the checkpoint.
        names: parameter names in the model's order, for checkpoints without names.
    """
    states: dict[Tensor, State] = {}

    def before(_: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        groups, restored = _read(optimizer, state_dict, names)
        states.update(restored)
        return {**state_dict, "param_groups": groups}

    hooks = [
        optimizer.register_load_state_dict_pre_hook(before),
        optimizer.register_load_state_dict_post_hook(
            lambda _: optimizer.state.update(states), prepend=True
        ),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _read(
    optimizer: Any, state_dict: Any, names: Sequence[str]
) -> tuple[list[Group], dict[Tensor, State]]:
    """Return the merged groups of a checkpoint, and the states of the parameters."""
    check_state_dict(state_dict)
    present, kept = optimizer.param_groups, state_dict["state"]
    named = named_by_order(state_dict["param_groups"], names)
    owners = {key: group for group in named for key in group["params"]}
    saved = matched_by_name(named, present)
    rule = optimizer.rule
    check_origin(saved, kept, rule.options, rule.state, type(optimizer).__name__)
    check_groups(saved, present)
    warn_of_roles([*zip(present, saved, strict=True)])
    states: dict[Tensor, State] = {}
    restarted: list[str] = []
    merged = [_merged(*pair, optimizer.rule) for pair in zip(present, saved, strict=True)]
    for group, options in zip(present, merged, strict=True):
        optimizer.check_group_(options)
        layout = {key: options[key] for key in LAYOUT_KEYS}
        for (param, name), key in zip(named_params(group), options["params"], strict=True):
            if not kept.get(key) or param.is_meta:
                continue
            fresh = optimizer.fresh_state(param, options)
            own = as_loaded(param, kept[key], fresh, name)
            states[param] = restored_state(fresh, own, rule.state, name, type(optimizer))
            was = _direction({**layout, **owners[key]}, param, optimizer.rule)
            if was != _direction(options, param, optimizer.rule):
                restart_statistics_(states[param])
                restarted.append(f"{name} ({was})")
    warn_of_restart(restarted)
    return merged, states


def _direction(group: Group, param: Tensor, rule: Rule) -> Any:
    """Return the direction whose norm the running norm tracks; ``None`` for rules without directions."""
    if "direction" not in rule.options:
        return None
    hyper = Hyper(direction=group.get("direction", "gradient"))  # older versions had no other
    return hyper.for_neurons(hold_in(group, param).neurons).direction


def _merged(present: Group, saved: Group, rule: Rule) -> Group:
    """Return a saved group with the current layout, and current values for its missing options."""
    own = {key: value for key, value in present.items() if key not in ("params", "param_names")}
    layout = {key: own[key] for key in LAYOUT_KEYS}
    lacking = {key: rule.missing[key] for key in rule.missing.keys() - saved.keys()}
    merged = {**own, **lacking, **saved, **layout}
    if saved.get("role", present["role"]) != present["role"] and present["params"]:
        # An embedding's direction="polar" had no effect when saved, so it must have none now.
        direction = _direction({**present, **saved}, present["params"][0], rule)
        merged |= {} if direction is None else {"direction": direction}
    return merged


def matched_by_name(saved: Sequence[Group], present: Sequence[Group]) -> list[Group]:
    """Regroup the saved groups like the current ones, by parameter name.

    A group gets the saved options of its first parameter, with a warning if those of others differ. If
    either side has no names, or the names differ or are not unique, the groups are returned unchanged, to
    be matched by position.

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
    if len(owners) < sum(len(group["params"]) for group in saved):
        return [*saved]  # two models with the same names
    if {name for each in names for name in each} != set(owners) or not all(names):
        return [*saved]
    ignored = {"params", "param_names", INITIAL_NORMS, *LAYOUT_KEYS}
    matched = []
    for each in names:
        group = {**owners[each[0]], "param_names": each}
        warn_of_lost_options(each, owners, ignored)
        for key in {"params", INITIAL_NORMS} & group.keys():
            group[key] = [_value_of(name, key, owners[name]) for name in each]
        matched.append(group)
    return matched


def named_by_order(saved: Sequence[Group], names: Sequence[str]) -> Sequence[Group]:
    """Name the parameters of a single unnamed group after the model's, in order.

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


def restart_statistics_(state: dict[str, Tensor]) -> None:
    """Restart a parameter's running norm, in place."""
    for key in ("step", "exp_avg_norm"):
        state[key] = torch.zeros_like(state[key])


def restored_state(
    fresh: dict[str, Tensor],
    saved: Mapping[str, Any],
    specs: Mapping[str, StateSpec],
    name: str,
    optimizer: type,
) -> dict[str, Tensor]:
    """Copy the saved values into fresh state, in its own dtypes."""
    if not isinstance(saved, Mapping):
        raise ValueError(
            f"{name}: its state in the checkpoint must be a mapping, not {saved!r}: {HOW_TO_PASS}"
        )
    restored = dict(fresh)
    for key, tensor in fresh.items():
        # torch's flattened checkpoints have an empty dict for missing state.
        if key not in saved or isinstance(saved[key], dict):
            if not specs[key].is_required:
                continue
            raise ValueError(
                f"{name}: the checkpoint has no {key} for it, only {some(saved)}. If it was not "
                f"saved by {optimizer.__name__}, load only the model's weights"
            )
        if not isinstance(saved[key], Tensor | int | float):
            raise ValueError(
                f"{name}: the checkpoint's {key} must be a tensor or a number, not {saved[key]!r}"
            )
        value = torch.as_tensor(saved[key])
        if value.shape != tensor.shape:
            raise ValueError(
                f"{name}: the checkpoint's {key} has shape {tuple(value.shape)}, but this "
                f"model's layout needs shape {tuple(tensor.shape)}; load it into the model that it was "
                "saved from, with the same overrides"
            )
        loaded = value.detach().to(tensor.device, tensor.dtype, copy=True)
        if loaded.stride() != tensor.stride() and not is_sharded(loaded):
            loaded = torch.empty_like(tensor).copy_(loaded)  # in the memory order that kernels walk
        restored[key] = loaded
    return restored
