"""Keep neurons on a constraint under any torch optimizer."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from nero.checks.checkpoints import check_groups, check_state_dict
from nero.checks.flattened import SeenShapes
from nero.checks.names import named_params
from nero.checks.params import check_has_params, check_param, warn_untrainable
from nero.checks.trained import LoadWatch, layers_of, warn_if_trained
from nero.core.arguments import kind_of
from nero.core.neurons import LAYOUT_KEYS, neurons_from_options
from nero.core.sphere import BALANCED, Sphere, as_constraint, neuron_norm
from nero.hold import hold_in
from nero.layout.arrival import read_layouts
from nero.optim.base import RelativeOptimizer
from nero.optim.checkpoint import INITIAL_NORMS, matched_by_name
from nero.optim.nero import Nero
from nero.projection import project_held_, project_param_


class _Delegated:
    """An attribute that lives in the wrapped optimizer."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: "Balanced | None", owner: type) -> Any:
        return self if instance is None else getattr(instance.optimizer, self.name)

    def __set__(self, instance: "Balanced", value: Any) -> None:
        setattr(instance.optimizer, self.name, value)

    def __delete__(self, instance: "Balanced") -> None:
        delattr(instance.optimizer, self.name)


class Balanced(Optimizer):
    """Wrap a torch optimizer so that each of its steps ends on the constraint.

    Hooks on the wrapped optimizer's step project the weights it changed. State, param groups, schedulers
    and checkpoints are the wrapped optimizer's own, so its checkpoints load with and without
    ``Balanced``.

    Args:
        optimizer: any torch optimizer. Neurons come from its param groups if they were made by
            [`param_groups`][nero.param_groups], otherwise from shapes, with a warning.
        constraint: the constraint on neurons, balanced by default, with a warning if the weights look
            trained. With ``"initial"``, every neuron keeps its norm from before the first step; a zero
            neuron keeps the norm it gets in its first step.

    Example:
        The paper's LAMB with balanced neurons, then plain SGD:

        >>> model = nn.Linear(10, 3)
        >>> optimizer = nero.Balanced(nero.baselines.Lamb(nero.param_groups(model)))
        >>> optimizer = nero.Balanced(torch.optim.SGD(nero.param_groups(model), lr=0.1))
        >>> model(torch.randn(5, 10)).square().mean().backward()
        >>> optimizer.step()
        >>> torch.allclose(model.weight.norm(dim=1), torch.ones(3))
        True
    """

    optimizer: Optimizer
    param_groups = _Delegated()
    state = _Delegated()
    defaults = _Delegated()
    # GradScaler hands these to optimizers that unscale their gradients themselves.
    grad_scale = _Delegated()
    found_inf = _Delegated()

    def __init__(self, optimizer: Optimizer, constraint: Sphere | str | None = None) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"Balanced wraps an optimizer, not {kind_of(optimizer)}: build one first, such as "
                "torch.optim.SGD(nero.param_groups(model))"
            )
        if isinstance(optimizer, Balanced | Nero):
            raise TypeError(
                f"{type(optimizer).__name__} already has a constraint: use it directly, or pass it a "
                "different constraint="
            )
        if getattr(optimizer, "_is_balanced", False):
            raise ValueError("this optimizer is wrapped by another Balanced already: use that one")
        # Optimizer.__init__ is not called: groups, state and hooks are the wrapped optimizer's.
        self.optimizer = optimizer
        self._chosen = None if constraint is None else as_constraint(constraint)
        _check_groups(optimizer.param_groups)
        if not isinstance(optimizer, RelativeOptimizer):  # which warns by itself
            warn_untrainable(optimizer.param_groups)
        self._attach()
        self._project_groups(optimizer.param_groups)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Let the wrapped optimizer step, then project."""
        return self.optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients."""
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state, with constraints as plain values."""
        self._shapes.check(self.param_groups, self.state)
        packed = self.optimizer.state_dict()
        for group in packed["param_groups"]:
            if isinstance(group.get("constraint"), Sphere):
                group["constraint"] = asdict(group["constraint"])
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the wrapped optimizer's state; weights are not projected.

        Layouts come from the current model. So does the constraint of a group if the checkpoint has none,
        because the wrapped optimizer alone saved it.
        """
        self._shapes.check(self.param_groups, self.state)
        check_state_dict(state_dict)
        own = [{key: group[key] for key in _OWN if key in group} for group in self.param_groups]
        groups = matched_by_name(state_dict["param_groups"], self.param_groups)
        check_groups(groups, self.param_groups)
        self.optimizer.load_state_dict({**state_dict, "param_groups": groups})
        for group, kept in zip(self.param_groups, own, strict=True):
            group.update({k: v for k, v in kept.items() if k in LAYOUT_KEYS or k not in group})
        self._shapes.note(self.param_groups)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a param group, and project it."""
        check_has_params(param_group)
        self.optimizer.add_param_group(param_group)
        try:
            _check_groups(self.param_groups[-1:])
        except Exception:
            self.param_groups.pop()
            raise
        self._shapes.note(self.param_groups[-1:])
        self._project_groups(self.param_groups[-1:])

    def __getattr__(self, name: str) -> Any:
        # Hooks and other attributes live in the wrapped optimizer.
        if name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __getstate__(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer, "_chosen": self._chosen}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.optimizer = state["optimizer"]
        self._chosen = state["_chosen"] if "_chosen" in state else state["constraint"]
        self._attach()

    def __repr__(self) -> str:
        return f"Balanced({self.constraint}) of {self.optimizer!r}"

    @property
    def constraint(self) -> Sphere:
        """The constraint for groups that don't set one."""
        return BALANCED if self._chosen is None else self._chosen

    @property
    def _unchosen(self) -> Sphere | None:
        """The default constraint, or ``None`` if the user chose one."""
        return BALANCED if self._chosen is None else None

    def _attach(self) -> None:
        self._watch, self._shapes = LoadWatch(), SeenShapes()
        self._shapes.note(self.param_groups)
        self.optimizer._is_balanced = True  # type: ignore[attr-defined]
        self.optimizer.register_step_pre_hook(lambda *_: self._before_step())
        self.optimizer.register_step_post_hook(lambda *_: self._project())

    def _constraint(self, group: dict[str, Any]) -> Sphere:
        return as_constraint(group.get("constraint", self.constraint))

    def _project_groups(self, groups: list[dict[str, Any]]) -> None:
        warn_if_trained(layers_of(groups, self._unchosen))
        for group in groups:
            for param in filter(_is_trainable, group["params"]):
                neurons = neurons_from_options(group, param.shape)
                project_param_(param, neurons, self._constraint(group))
        if isinstance(self.optimizer, RelativeOptimizer):
            self.optimizer.renew_state(groups)

    @torch.no_grad()
    def _before_step(self) -> None:
        if not torch.compiler.is_compiling():
            self._shapes.check(self.param_groups, self.state)
            self._watch.before_step(self.param_groups, self._unchosen)
        # Measured once, or rounding errors would add up; kept in the group, for checkpoints and copies; for
        # all parameters, since a closure may produce gradients only now.
        for group in self.param_groups:
            if self._constraint(group).radius == "initial":
                known = group.get(INITIAL_NORMS) or [None] * len(group["params"])
                group[INITIAL_NORMS] = [
                    _norms(param, group) if norms is None else norms
                    for param, norms in zip(group["params"], known, strict=True)
                ]

    @torch.no_grad()
    def _project(self) -> None:
        for group in self.param_groups:
            all_norms = list(group.get(INITIAL_NORMS) or [None] * len(group["params"]))
            for index, param in enumerate(group["params"]):
                held = hold_in(group, param)
                # If neurons are sharded, all ranks must take part, with a gradient or without. Weights that
                # did not change stay bit-identical.
                is_changed = param.grad is not None or held.neuron_mesh_dims
                if not is_changed or not _is_trainable(param):
                    continue
                now = _norms(param, group)
                if all_norms[index] is not None and now is not None:
                    norms = all_norms[index].to(param.device)
                    all_norms[index] = torch.where(norms > 0, norms, now)
                sphere = self._constraint(group).for_fan_in(held.neurons.fan_in)
                project_held_(held, sphere, all_norms[index])
            if INITIAL_NORMS in group:
                group[INITIAL_NORMS] = all_norms
        if not torch.compiler.is_compiling():
            self._watch.after_step()


# Keys that are missing if the wrapped optimizer was saved without ``Balanced``.
_OWN = (*LAYOUT_KEYS, "constraint")


def _is_trainable(param: Tensor) -> bool:
    return param.requires_grad and not param.is_meta


def _check_groups(groups: list[dict[str, Any]]) -> None:
    read_layouts(groups)
    for group in groups:
        for param, name in named_params(group):
            check_param(param, group, name)


def _norms(param: Tensor, group: dict[str, Any]) -> Tensor | None:
    neurons = neurons_from_options(group, param.shape)
    if not _is_trainable(param) or neurons.is_elementwise:
        return None
    return neuron_norm(neurons.view(param), fan_in_dims=neurons.fan_in_dims)
