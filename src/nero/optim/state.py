"""A parameter's state: created when it is added, moved with it, extended when options need more."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nero.core.held import Held
from nero.core.spec import StateSpec
from nero.optim.rule import State

Specs = Mapping[str, StateSpec]


@torch.no_grad()
def new_state(specs: Specs, held: Held, hyper: Any, keys: Sequence[str]) -> State:
    """Create these tensors of a parameter's state, as declared."""
    return {key: held.new_state_tensor(key, specs[key], hyper) for key in keys}


def moved_state(state: State, specs: Specs, param: Tensor, options: Any) -> State:
    """Return the state on the parameter's device and in its dtypes; the same object if it fits already."""
    dtypes = {key: specs[key].dtype_for(param.dtype, options) for key in state}
    # A state's tensors are made, and moved, together.
    is_here = [*state.values()][-1].device == param.device
    if is_here and all(tensor.dtype == dtypes[key] for key, tensor in state.items()):
        return state
    return {key: tensor.to(param.device, dtypes[key]) for key, tensor in state.items()}


def can_start(param: Tensor) -> bool:
    """Whether a parameter can have state: a meta tensor can once it has a gradient."""
    return param.requires_grad and (param.grad is not None or not param.is_meta)


def has_storage(state: State) -> bool:
    """Whether there is state, and none of it is on the meta device."""
    return bool(state) and not any(tensor.is_meta for tensor in state.values())


def grow_state_(
    state: State, specs: Specs, held: Held, hyper: Any, keys: Sequence[str], name: str
) -> list[str]:
    """Update the state in place after options changed, and return the new keys.

    Missing tensors start at their initial value. Unused tensors as large as the parameter are dropped.
    """
    added = [key for key in keys if key not in state]
    for key in added:
        if specs[key].initial is not None:
            raise ValueError(
                f"{name}: its new options need {key}, which is measured when the optimizer is built; "
                "build a new one with these options"
            )
    kept = {k: v for k, v in state.items() if k in keys or specs[k].shape != "per element"}
    made = {**kept, **new_state(specs, held, hyper, added)}
    state.clear()
    state.update((key, made[key]) for key in specs if key in made)
    return added
