"""Checkpoints from another optimizer, or with parameters in another order."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from nero.core.arguments import kind_of
from nero.core.presets import as_text
from nero.core.spec import StateSpec
from nero.core.sphere import as_constraint
from nero.core.warn import and_more, warn_user

Group: TypeAlias = Mapping[str, Any]

HOW_TO_PASS = "pass what optimizer.state_dict() returned"
_FRESH = "load only the model's weights, and start with fresh optimizer state"
_TORCHS_OPTIONS = {"betas", "eps", "fused", "maximize", "momentum", "weight_decay"}
"""Options that torch's optimizers also have, so they don't identify ours."""


def some(keys: Iterable[Any]) -> str:
    """Name the first three keys, and count the others."""
    return and_more([*map(repr, keys)]) or "nothing"


def check_mapping(state_dict: Any) -> None:
    """Raise unless this is a mapping; a hook may still change its contents."""
    if not isinstance(state_dict, Mapping):
        first = ": load the file first, torch.load(path)" if isinstance(state_dict, str) else ""
        raise TypeError(
            f"state_dict must be what optimizer.state_dict() returned, not {kind_of(state_dict)}{first}"
        )


def check_state_dict(state_dict: Any) -> None:
    """Raise unless this is what ``state_dict()`` of an optimizer returns."""
    check_mapping(state_dict)
    for key in ("param_groups", "state"):
        if key not in state_dict:
            raise ValueError(
                f"this state_dict has no {key!r}, only {some(state_dict)}, so no optimizer returned it: "
                + HOW_TO_PASS
            )
    groups, states = state_dict["param_groups"], state_dict["state"]
    if not isinstance(groups, Sequence) or not all(isinstance(g, Mapping) for g in groups):
        raise ValueError(f"this state_dict's param_groups are not a list of groups: {HOW_TO_PASS}")
    if not all(isinstance(group.get("params"), Sequence) for group in groups):
        raise ValueError(f"a group of this state_dict has no list of params: {HOW_TO_PASS}")
    if not isinstance(states, Mapping):
        raise ValueError(f"this state_dict's state is not a mapping: {HOW_TO_PASS}")


def check_origin(
    saved: Sequence[Group],
    states: Mapping[Any, Any],
    options: Iterable[str],
    specs: Mapping[str, StateSpec],
    optimizer: str,
) -> None:
    """Raise if a parameter's saved state lacks every key that this optimizer always saves."""
    own_options = {*options} - _TORCHS_OPTIONS
    for group in saved:
        is_empty = not any(states.get(index) for index in group["params"])
        if is_empty and own_options and not own_options & group.keys():
            raise ValueError(
                f"the checkpoint has no {min(own_options)} and no state, only {some(group)}, so it was "
                f"not saved by {optimizer}: {_FRESH}"
            )
    own = [key for key, spec in specs.items() if key != "step" and spec.is_required]
    for index in [index for group in saved for index in group["params"]]:
        state = states.get(index)
        if own and state and isinstance(state, Mapping) and not {*own} & state.keys():
            raise ValueError(
                f"parameter {index}: the checkpoint has no {own[-1]} for it, only {some(state)}, so it "
                f"was not saved by {optimizer}: {_FRESH}"
            )


def check_groups(saved: Sequence[Group], present: Sequence[Group]) -> None:
    """Raise unless each saved group has as many parameters as the present one."""
    theirs, ours = ([len(group["params"]) for group in groups] for groups in (saved, present))
    if theirs == ours:
        return
    problem = "has a different number of parameter groups"
    if len(theirs) == len(ours):
        problem = "contains a parameter group that doesn't match the size of optimizer's group"
    raise ValueError(
        f"loaded state dict {problem}: it has {_sizes(theirs)}, this optimizer {_sizes(ours)}; build it "
        "the way the saved one was built: from the model, its parameters, or the same groups. Parameters "
        "are matched by name where both sides have the same names"
    )


def _sizes(sizes: Sequence[int]) -> str:
    return (
        f"{len(sizes)} group{'s' * (len(sizes) != 1)} of {', '.join(map(str, sizes)) or 'nothing'}"
    )


def warn_of_roles(pairs: Iterable[tuple[Group, Group]]) -> None:
    """Warn if a saved group had another role, because its options may not suit the new one."""
    for group, saved in pairs:
        was, now = saved.get("role"), group["role"]
        constraints = [as_constraint(g["constraint"]) for g in (group, saved) if "constraint" in g]
        if {was, now} == {"embedding", "neuron"} and len({*constraints}) > 1:
            name = group["param_names"][0] if "param_names" in group else "a parameter"
            warn_user(
                f"`{name}` was saved with role {was} but has role {now} here; it keeps its saved "
                "options. Build the optimizer with the same example and overrides as before"
            )
            return


def warn_of_restart(restarted: Sequence[str]) -> None:
    """Warn that the running norm of these parameters starts over."""
    if restarted:
        warn_user(
            f"{and_more(restarted, 1)} was saved with a different direction, so its running norm "
            "restarts; to resume exactly, build the optimizer with the same preset, example and overrides "
            "as before"
        )


def warn_of_lost_options(
    names: Sequence[str], owners: Mapping[str, Group], ignored: Iterable[str]
) -> None:
    """Warn if parameters that share a group now were saved with different options.

    Args:
        names: of the group's parameters; it takes the options of the first.
        owners: the saved group of each parameter.
        ignored: keys that are not options.
    """
    first = owners[names[0]]
    for name in names[1:]:
        lost = sorted(
            key for key in first.keys() - {*ignored} if first[key] != owners[name].get(key)
        )
        if lost:
            was = as_text({key: owners[name].get(key) for key in lost})
            now = as_text({key: first[key] for key in lost})
            warn_user(
                f"`{name}` was saved with {was}, but is now in the same group as `{names[0]}` and uses its "
                f"{now}; build the optimizer with the same preset, overrides and example as before"
            )
            return
