"""What all optimisers here share: strict inputs, eager state, exact resume."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple, TypeAlias, overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nero.functional import working_dtype
from nero.layout import LAYOUT_KEYS, Overrides, param_groups
from nero.optim.checks import (
    check_lr,
    check_overrides,
    check_param,
    raise_sparse,
    warn_no_storage,
)

Params: TypeAlias = (
    nn.Module | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
)
Group: TypeAlias = dict[str, Any]
State: TypeAlias = dict[str, Tensor]


class Work(NamedTuple):
    """A parameter that has a gradient at this step."""

    param: Tensor
    grad: Tensor
    state: State
    group: Group
    place: int
    """Position in its group."""
    position: int
    """Position among all parameters of the optimiser."""
    shape: torch.Size
    """Of the whole parameter, where ``param`` is what this rank holds of it."""

    @property
    def name(self) -> str:
        """What messages call it."""
        return param_name(self.group, self.place)


class RelativeOptimizer(Optimizer):
    """Base class of the optimisers of this package.

    It promises, for every subclass: state is made when a parameter is added, so that checkpoints look
    the same before and after the first step and on every rank; ``load_state_dict`` keeps the dtype of
    the state; a parameter that a trainer swapped in gets state at the next step; gradients are never
    written to; a step at ``lr = 0`` changes nothing.

    A subclass implements `_new_state` and `_update`.
    """

    # State that a checkpoint need not have, because an older version did not write it.
    _optional_state: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, params: Params, defaults: dict[str, Any], overrides: Overrides = ()) -> None:
        defaults = {"role": None, "neuron_dims": None, "num_groups": 1, **defaults}
        if isinstance(params, nn.Module):
            check_overrides(overrides, defaults)
            params = param_groups(params, overrides=overrides)
        elif overrides:
            raise TypeError("overrides match parameter names: pass the model, not its parameters")
        super().__init__(_copied(params), defaults)

    @abstractmethod
    def _new_state(self, param: Tensor, group: Group) -> State:
        """Make the state of a parameter that the optimiser has not seen before."""

    def _welcome(self, param: Tensor, group: Group, state: State) -> None:
        """Change, in place, a parameter that the optimiser has not seen before."""

    @abstractmethod
    def _update(self, work: list[Work]) -> None:
        """Update all parameters of one step, in place."""

    def _check_group(self, group: Group) -> None:
        """Raise if an option of ``group`` is invalid; fill in what it leaves open."""
        check_lr(group["lr"])

    def add_param_group(self, param_group: Group) -> None:
        """Add a param group, and make the state of its parameters."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            # Everything is checked before anything is projected.
            self._check_group(group)
            group["lr"] = _own(group["lr"])
            for param, name in named(group):
                self._check_param(param, group, name)
        except Exception:
            self.param_groups.pop()
            raise
        for place, param in enumerate(group["params"]):
            self._prepare(param, group, place)

    def renew_state(self, groups: Iterable[Group]) -> None:
        """Make the state of parameters anew that were changed before their first step."""
        for group in groups:
            for param in group["params"]:
                state: State = self.state.get(param, {})
                if state and not state["step"].is_meta and not state["step"].any():
                    self.state[param] = self._new_state(param.detach(), group)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient.

        Args:
            closure: evaluates the model again and returns the loss.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        work = []
        position = 0
        for group in self.param_groups:
            for place, param in enumerate(group["params"]):
                state = self._prepare(param, group, place)
                grad = param.grad
                if grad is None:
                    if param.is_meta:
                        warn_no_storage(param_name(group, place))
                elif param.requires_grad:
                    if grad.layout != torch.strided:
                        raise_sparse(param_name(group, place))
                    work.append(Work(param, grad, state, group, place, position, param.shape))
                position += 1
        self._update(work)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the parameters that are in the groups now.

        A trainer may have swapped parameters since the last step: the state of those that left goes,
        and those that came get theirs at the next step, because making it may project them.
        """
        members = {param for group in self.param_groups for param in group["params"]}
        for key in [*self.state]:
            if isinstance(key, Tensor) and key not in members:
                del self.state[key]
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load optimiser state, bit for bit: unlike torch's, state keeps its own dtype.

        The layout comes from the model that is being trained, everything else from the checkpoint.
        Options that an older checkpoint does not have keep their present values.
        """
        states: dict[Tensor, State] = {}

        def before(_: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
            if _group_sizes(self.param_groups) != _group_sizes(state_dict["param_groups"]):
                return state_dict  # torch's own error is clear
            groups = self._merged_groups(state_dict["param_groups"])
            # Made before anything changes, so that a checkpoint that does not fit leaves no trace.
            states.update(self._loaded_states(groups, state_dict["state"]))
            return {**state_dict, "param_groups": groups}

        hooks = [
            self.register_load_state_dict_pre_hook(before),
            self.register_load_state_dict_post_hook(
                lambda _: self.state.update(states), prepend=True
            ),
        ]
        try:
            super().load_state_dict(state_dict)
        finally:
            for hook in hooks:
                hook.remove()

    def _merged_groups(self, saved_groups: list[Group]) -> list[Group]:
        merged = []
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            present = {k: v for k, v in group.items() if k not in ("params", "param_names")}
            layout = {k: present[k] for k in LAYOUT_KEYS}
            merged.append({**present, **saved, **layout})
            merged[-1]["lr"] = _own(merged[-1]["lr"])
            self._check_group(merged[-1])
        return merged

    def _loaded_states(
        self, saved_groups: list[Group], saved_states: dict[Any, dict[str, Any]]
    ) -> dict[Tensor, State]:
        states = {}
        for group, saved_group in zip(self.param_groups, saved_groups, strict=True):
            for (param, name), index in zip(named(group), saved_group["params"], strict=True):
                saved = saved_states.get(index)
                if saved and not param.is_meta:
                    fresh = self._new_state(param.detach(), saved_group)
                    states[param] = self._filled(fresh, saved, name)
        return states

    def _prepare(self, param: Tensor, group: Group, place: int) -> State:
        """Return the state of a parameter, which is made or moved along if it must be.

        A parameter that is frozen or has no storage has none.
        """
        state: State = self.state.get(param, {})  # empty if someone only asked for it
        if state and _fits(state, param):
            return state
        if state and not any(tensor.is_meta for tensor in state.values()):
            state = {key: _moved(tensor, param) for key, tensor in state.items()}
        elif param.requires_grad and (param.grad is not None or not param.is_meta):
            self._check_param(param, group, param_name(group, place))
            with torch.no_grad():
                state = self._new_state(param, group)
                self._welcome(param, group, state)
        else:
            return state
        self.state[param] = state
        return state

    def _filled(self, fresh: State, saved: dict[str, Any], name: str) -> State:
        """Give ``fresh`` the saved values, in its own dtypes."""
        filled = dict(fresh)
        for key, tensor in fresh.items():
            # torch's flattened checkpoints have an empty dict for what was not saved.
            if key not in saved or isinstance(saved[key], dict):
                if key in self._optional_state:
                    continue
                raise ValueError(
                    f"{name}: the checkpoint has no {key} for it, only {sorted(saved)}; is it the "
                    f"checkpoint of another optimizer than {type(self).__name__}?"
                )
            value = torch.as_tensor(saved[key])
            if value.shape != tensor.shape:
                raise ValueError(
                    f"{name}: the checkpoint's {key} has shape {tuple(value.shape)}, but this "
                    f"model's layout needs shape {tuple(tensor.shape)}"
                )
            filled[key] = value.detach().to(tensor.device, tensor.dtype, copy=True)
        return filled

    def _check_param(self, param: Tensor, group: Group, name: str) -> None:
        """Raise if ``param`` has no neurons, or does not fit its group's layout."""
        check_param(param, group, name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for key, value in self.defaults.items():
                if key != "differentiable":  # torch adds it to the defaults of every optimiser
                    group.setdefault(key, value)


def named(group: Group) -> list[tuple[Tensor, str]]:
    """Return the parameters of a group, each with the name that messages use."""
    return [(param, param_name(group, i)) for i, param in enumerate(group["params"])]


def param_name(group: Group, place: int) -> str:
    """Return what messages call the parameter at this place of a group."""
    names = group.get("param_names")
    if names is not None:
        return f"`{names[place]}`"
    return f"parameter {place} of shape {tuple(group['params'][place].shape)}"


def scalar(lr: float | Tensor) -> float | Tensor:
    """Return ``lr`` as a Python number (not numpy's) or as a tensor without dims."""
    return lr.reshape(()) if isinstance(lr, Tensor) else float(lr)


def _fits(state: State, param: Tensor) -> bool:
    # A state's tensors are made, and moved, together. The first counts steps, and may be the only one.
    last = list(state.values())[-1]
    if last.device != param.device:
        return False
    return last.dtype == working_dtype(param.dtype) or not last.is_floating_point()


def _moved(tensor: Tensor, param: Tensor) -> Tensor:
    dtype = working_dtype(param.dtype) if tensor.is_floating_point() else tensor.dtype
    return tensor.to(param.device, dtype)


def _copied(params: Any) -> Any:
    # Torch fills in the groups that it is given, and another optimiser may be given the same.
    if isinstance(params, Tensor):
        return params  # torch refuses it, and says why
    return [dict(item) if isinstance(item, dict) else item for item in params]


def _own(lr: float | Tensor) -> float | Tensor:
    # Groups that share one tensor would each multiply it when told to decay.
    return lr.clone() if isinstance(lr, Tensor) else lr


def _group_sizes(groups: list[Group]) -> list[int]:
    return [len(group["params"]) for group in groups]
