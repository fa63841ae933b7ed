"""Give the constraints of balanced networks to any torch optimiser."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from nero.functional import BALANCED, Sphere, as_constraint, neuron_norm
from nero.layout import layout_from_options
from nero.optim.checks import check_real
from nero.optim.nero import Nero
from nero.optim.projection import project_, project_param_


class _Delegated:
    """An attribute that lives in the wrapped optimiser."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: "Balanced | None", owner: type) -> Any:
        return self if instance is None else getattr(instance.optimizer, self.name)

    def __set__(self, instance: "Balanced", value: Any) -> None:
        setattr(instance.optimizer, self.name, value)

    def __delete__(self, instance: "Balanced") -> None:
        delattr(instance.optimizer, self.name)


class Balanced(Optimizer):
    """Wrap a torch optimiser so that each of its steps ends on the constraint.

    The wrapped optimiser does its own step; hooks of that step project what it changed. State, param
    groups, schedulers and checkpoints are the wrapped optimiser's own, so its checkpoints load with and
    without ``Balanced``.

    Args:
        optimizer: any torch optimiser. Neurons come from its param groups if they were made by
            [`param_groups`][nero.param_groups], otherwise from shapes.
        constraint: where neurons live. With ``"initial"`` every neuron keeps the norm it has before
            each step, and a zero neuron the norm that its first step gives it.

    Example:
        The paper's LAMB on balanced networks, and plain SGD on them:

        >>> model = nn.Linear(10, 3)
        >>> optimizer = nero.Balanced(nero.baselines.Lamb(nero.param_groups(model)))
        >>> optimizer = nero.Balanced(torch.optim.SGD(model.parameters(), lr=0.1))
        >>> model(torch.randn(5, 10)).square().mean().backward()
        >>> optimizer.step()
        >>> torch.allclose(model.weight.norm(dim=1), torch.ones(3))
        True
    """

    optimizer: Optimizer
    param_groups = _Delegated()
    state = _Delegated()
    defaults = _Delegated()
    # GradScaler hands these to optimisers that unscale their gradients themselves.
    grad_scale = _Delegated()
    found_inf = _Delegated()

    def __init__(self, optimizer: Optimizer, constraint: Sphere | str = BALANCED) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"Balanced wraps an optimizer, not {type(optimizer).__name__}")
        if isinstance(optimizer, Balanced | Nero):
            raise TypeError(f"{type(optimizer).__name__} carries its own constraint already")
        # Optimizer.__init__ is not called: groups, state and hooks are the wrapped optimiser's.
        self.optimizer = optimizer
        self.constraint = as_constraint(constraint)
        _check_groups(optimizer.param_groups)
        self._attach()
        project_(optimizer.param_groups, constraint=self.constraint)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Let the wrapped optimiser step, then project."""
        return self.optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients."""
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimiser's state, with constraints as plain values."""
        packed = self.optimizer.state_dict()
        for group in packed["param_groups"]:
            if isinstance(group.get("constraint"), Sphere):
                group["constraint"] = asdict(group["constraint"])
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the wrapped optimiser's state; weights are not projected."""
        self.optimizer.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a param group, and project it."""
        self.optimizer.add_param_group(param_group)
        try:
            _check_groups(self.param_groups[-1:])
        except Exception:
            self.param_groups.pop()
            raise
        project_(self.optimizer.param_groups[-1:], constraint=self.constraint)

    def __getattr__(self, name: str) -> Any:
        # Hooks, and whatever else a class of optimisers has, live in the wrapped one.
        if name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __getstate__(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer, "constraint": self.constraint}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._attach()

    def __repr__(self) -> str:
        return f"Balanced({self.constraint}) of {self.optimizer!r}"

    def _attach(self) -> None:
        radii: dict[Tensor, Tensor] = {}
        self.optimizer.register_step_pre_hook(lambda *_: self._remember(radii))
        self.optimizer.register_step_post_hook(lambda *_: self._project(radii))

    def _trainable(self) -> list[tuple[Tensor, dict[str, Any], Sphere]]:
        return [
            (param, group, as_constraint(group.get("constraint", self.constraint)))
            for group in self.param_groups
            for param in group["params"]
            if param.requires_grad and not param.is_meta
        ]

    @torch.no_grad()
    def _remember(self, radii: dict[Tensor, Tensor]) -> None:
        # Of all parameters: a closure may give them gradients only now.
        for param, group, constraint in self._trainable():
            if constraint.radius == "initial":
                radii[param] = _norms(param, group)

    @torch.no_grad()
    def _project(self, radii: dict[Tensor, Tensor]) -> None:
        for param, group, constraint in self._trainable():
            radius = radii.pop(param, None)
            if param.grad is None:
                continue
            if radius is not None:
                radius = torch.where(radius > 0, radius, _norms(param, group))
            project_param_(param, layout_from_options(group, param.shape), constraint, radius)


def _check_groups(groups: list[dict[str, Any]]) -> None:
    for group in groups:
        for index, param in enumerate(group["params"]):
            check_real(param, f"parameter {index} of shape {tuple(param.shape)}")
            layout_from_options(group, param.shape).state_shape(param.shape)


def _norms(param: Tensor, group: dict[str, Any]) -> Tensor:
    layout = layout_from_options(group, param.shape)
    if layout.is_elementwise(param.shape):
        return param.abs()
    return neuron_norm(layout.view(param), fan_in_dims=layout.fan_in_dims(param.shape))
