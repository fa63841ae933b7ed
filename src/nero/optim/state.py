"""The state of a parameter: made when it is added, moved along with it, and grown with its options."""

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
    """Make these tensors of a parameter's state, as they are declared."""
    param, neurons = held.param.detach(), held.neurons
    state: State = {}
    for key in keys:
        spec = specs[key]
        dtype = spec.dtype_for(param.dtype, hyper)
        if spec.initial is not None:
            state[key] = spec.initial(param, hyper, held.neuron_norms).to(dtype)
        elif spec.shape == "scalar":
            state[key] = torch.zeros((), dtype=dtype, device=param.device)
        elif spec.shape == "per element" or neurons.is_elementwise:
            state[key] = torch.zeros_like(param, dtype=dtype, requires_grad=False)
        else:
            state[key] = held.zeros_per_neuron(dtype)
    return state


def moved_state(state: State, specs: Specs, param: Tensor, options: Any) -> State:
    """Return the state on the parameter's device and in its dtypes; the same object if it fits already."""
    dtypes = {key: specs[key].dtype_for(param.dtype, options) for key in state}
    # A state's tensors are made, and moved, together.
    is_here = [*state.values()][-1].device == param.device
    if is_here and all(tensor.dtype == dtypes[key] for key, tensor in state.items()):
        return state
    return {key: tensor.to(param.device, dtypes[key]) for key, tensor in state.items()}


def has_storage(state: State) -> bool:
    """Whether there is state, and none of it is on the meta device."""
    return bool(state) and not any(tensor.is_meta for tensor in state.values())


def grow_state_(
    state: State, specs: Specs, held: Held, hyper: Any, keys: Sequence[str], name: str
) -> list[str]:
    """Bring state in line with changed options, in place, and return the keys that are new.

    A tensor that starts at zero starts now. A tensor as large as the parameter goes if nothing needs it.
    """
    added = [key for key in keys if key not in state]
    for key in added:
        if specs[key].initial is not None:
            raise ValueError(
                f"{name}: its options have changed to some that need {key}, which is known only to "
                "an optimizer that is built with them"
            )
    kept = {k: v for k, v in state.items() if k in keys or specs[k].shape != "per element"}
    made = {**kept, **new_state(specs, held, hyper, added)}
    state.clear()
    state.update((key, made[key]) for key in specs if key in made)
    return added
