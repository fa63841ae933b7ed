"""What all optimisers here share: strict inputs, eager state, exact resume."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias, overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nero.layout import LAYOUT_KEYS, Overrides, param_groups

Params: TypeAlias = (
    nn.Module | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
)
Group: TypeAlias = dict[str, Any]
State: TypeAlias = dict[str, Tensor]


class Work(NamedTuple):
    """A parameter that has a gradient at this step."""

    param: Tensor
    grad: Tensor
    group: Group
    name: str
    """For messages."""
    position: int
    """Position among all parameters of the optimiser."""


class RelativeOptimizer(Optimizer):
    """Base class of the optimisers of this package.

    It promises, for every subclass: state is made when a parameter is added, so that checkpoints look
    the same before and after the first step and on every rank; ``load_state_dict`` keeps the dtype of
    the state; a parameter that a trainer swapped in gets state at the next step; gradients are never
    written to; a step at ``lr = 0`` changes nothing.

    A subclass implements `_new_state` and `_update`.
    """

    def __init__(self, params: Params, defaults: dict[str, Any], overrides: Overrides = ()) -> None:
        if isinstance(params, nn.Module):
            params = param_groups(params, overrides=overrides)
        elif overrides:
            raise TypeError("overrides match parameter names: pass the model, not its parameters")
        defaults = {"role": None, "neuron_dims": None, "num_groups": 1, **defaults}
        super().__init__(params, defaults)

    @abstractmethod
    def _new_state(self, param: Tensor, group: Group, name: str) -> State:
        """Make the state of a materialised, trainable parameter; may project it in place."""

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
            self._check_group(group)
            for param, name in _named(group):
                self._prepare(param, group, name)
        except Exception:
            self.param_groups.pop()
            raise

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
            for param, name in _named(group):
                self._prepare(param, group, name)
                if param.is_meta and param.grad is None:
                    _warn_no_storage(name)
                if param.grad is not None and param.requires_grad:
                    work.append(Work(param, _dense(param.grad, name), group, name, position))
                position += 1
        self._update(work)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load optimiser state, bit for bit: unlike torch's, state keeps its own dtype.

        The layout comes from the model that is being trained, everything else from the checkpoint.
        Options that an older checkpoint does not have keep their present values.
        """
        loaded: dict[str, Any] = {}

        def before(_: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
            loaded.update(state_dict, param_groups=self._merged_groups(state_dict["param_groups"]))
            return loaded

        hooks = [
            self.register_load_state_dict_pre_hook(before),
            self.register_load_state_dict_post_hook(lambda _: self._restore(loaded), prepend=True),
        ]
        try:
            super().load_state_dict(state_dict)
        finally:
            for hook in hooks:
                hook.remove()

    def _merged_groups(self, saved_groups: list[Group]) -> list[Group]:
        if len(saved_groups) != len(self.param_groups):
            return saved_groups  # torch's own error is clear
        merged = []
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            present = {k: v for k, v in group.items() if k not in ("params", "param_names")}
            layout = {k: present[k] for k in LAYOUT_KEYS}
            merged.append({**present, **saved, **layout})
        return merged

    def _restore(self, state_dict: dict[str, Any]) -> None:
        for group, saved_group in zip(self.param_groups, state_dict["param_groups"], strict=True):
            self._check_group(group)
            for (param, name), index in zip(_named(group), saved_group["params"], strict=True):
                if param.is_meta:
                    continue
                fresh = self._fresh_state(param, group, name)
                saved = state_dict["state"].get(index, {})
                for key, tensor in fresh.items():
                    if key not in saved:
                        continue
                    if saved[key].shape != tensor.shape:
                        raise ValueError(
                            f"{name}: the checkpoint's {key} has shape {tuple(saved[key].shape)}, but "
                            f"this model's layout needs {tuple(tensor.shape)}"
                        )
                    fresh[key] = saved[key].detach().to(tensor.device, tensor.dtype, copy=True)
                if saved or param in self.state:
                    self.state[param] = fresh

    def _fresh_state(self, param: Tensor, group: Group, name: str) -> State:
        # On a copy, because making state may project, and loading never does.
        return self._new_state(param.detach().clone(), group, name)

    def _prepare(self, param: Tensor, group: Group, name: str) -> None:
        """Make the state of a parameter that is new, trainable and has storage, or move it along."""
        state: State | None = self.state.get(param)
        if state is not None and all(tensor.device == param.device for tensor in state.values()):
            return
        if state is not None and not any(tensor.is_meta for tensor in state.values()):
            self.state[param] = {key: tensor.to(param.device) for key, tensor in state.items()}
        elif param.requires_grad and (param.grad is not None or not param.is_meta):
            _check_param(param, name)
            with torch.no_grad():
                self.state[param] = self._new_state(param, group, name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for key, value in self.defaults.items():
                group.setdefault(key, value)


def check_lr(lr: float | Tensor) -> None:
    """Raise unless ``lr`` is a non-negative number or a one-element tensor."""
    if isinstance(lr, Tensor):
        if lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
    elif not lr >= 0:
        raise ValueError(f"Invalid learning rate: {lr}")


def check_unit_interval(name: str, value: float) -> None:
    """Raise unless ``value`` lies in [0, 1)."""
    if not 0 <= value < 1:
        raise ValueError(f"Invalid {name}: {value}; it must be in [0, 1)")


def check_non_negative(name: str, value: float) -> None:
    """Raise unless ``value`` is at least zero and finite."""
    if not 0 <= value < float("inf"):
        raise ValueError(f"Invalid {name}: {value}; it must be finite and at least 0")


def warn_no_foreach(foreach: bool | None) -> None:
    """Warn a caller who asks for an implementation that does not exist."""
    if foreach:
        warnings.warn(
            "foreach=True has no effect: there is no foreach implementation; leave foreach=None",
            stacklevel=4,
        )


def _named(group: Group) -> list[tuple[Tensor, str]]:
    params = group["params"]
    names = group.get("param_names")
    if names is None:
        names = [f"parameter {i} of shape {tuple(p.shape)}" for i, p in enumerate(params)]
    else:
        names = [f"`{name}`" for name in names]
    return list(zip(params, names, strict=True))


def _warn_no_storage(name: str) -> None:
    warnings.warn(
        f"{name} is still on the meta device, so this step cannot train it; if the model has been "
        "materialised since (to_empty makes new parameters), build the optimizer anew",
        stacklevel=4,
    )


def _dense(grad: Tensor, name: str) -> Tensor:
    if grad.layout != torch.strided:
        raise RuntimeError(
            f"{name} has a sparse gradient, which this optimizer does not support; build its "
            "embedding with sparse=False"
        )
    return grad


def _check_param(param: Tensor, name: str) -> None:
    if not param.is_floating_point():
        raise TypeError(
            f"{name} is {param.dtype}; only real floating-point parameters can be turned"
        )
    if getattr(param, "_fsdp_flattened", False) or hasattr(param, "ds_id"):
        raise RuntimeError(
            f"{name} was flattened by FSDP1 or DeepSpeed ZeRO, so its neurons are cut into pieces; "
            "use FSDP2 (torch.distributed.fsdp.fully_shard), which keeps them whole"
        )
