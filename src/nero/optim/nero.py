"""The Nero optimiser."""

import math
import warnings
from dataclasses import asdict
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nero.backends import (
    NONFINITE,
    PLANNING,
    NeroOptions,
    NeroTask,
    Nonfinite,
    cpu,
    select_backend,
    why_not_fused,
)
from nero.functional import (
    BALANCED,
    UNCONSTRAINED,
    Sphere,
    as_constraint,
    neuron_norm,
    sum_dtype,
    working_dtype,
)
from nero.functional.sharding import is_sharded, whole
from nero.layout import Layout, Overrides, layout_from_options
from nero.optim.base import Group, Params, RelativeOptimizer, State, Work, scalar
from nero.optim.checks import check_non_negative, check_unit_interval, warn_no_foreach
from nero.optim.projection import project_param_


class Nero(RelativeOptimizer):
    r"""Turn every neuron by an angle, and keep it balanced (Liu et al. 2021, Algorithm 1).

    For each neuron with weights $w$ and gradient $g$:

    $$
    \bar g^2 \leftarrow \beta\,\bar g^2 + (1-\beta)\,\|g\|^2 \qquad
    w \leftarrow w - \eta\,\frac{\|w\|}{\bar g}\,g \qquad
    w \leftarrow w - \tfrac1n\textstyle\sum_i w_i \qquad
    w \leftarrow w/\|w\|
    $$

    with Adam's bias correction of $\bar g$. Biases, gains and whatever else has no fan-in step by
    $\eta\,\sigma_b/\bar g_b\cdot g_b$, where $\sigma_b$ is their initial scale.

    Construction projects the weights onto the constraint, so build the optimiser after the weights
    are initialised, and see ``constraint`` for pretrained ones.

    Args:
        params: a model (neurons are found from its modules), its parameters (neurons are found from
            shapes), or param groups. Prefer the model.
        lr: the angle in radians through which neurons turn at a step.
        beta: averaging constant of the squared gradient norm.
        bias_scale: the scale of parameters without fan-in that start at zero.
        constraint: where neurons live: a [`Sphere`][nero.Sphere] or ``"balanced"``, ``"norm"``,
            ``"mean"``, ``"none"``, or ``"initial"`` for fine-tuning pretrained weights.
        gain_penalty: strength of a quadratic penalty that pulls gains towards one (section 5.6).
        nonfinite: what to do with a neuron whose gradient is NaN or inf: ``"skip"`` it and count it in
            `num_skipped`, ``"raise"`` before anything changes, or ``"propagate"``.
        maximize: maximise the objective instead of minimising it.
        stochastic_rounding: round bfloat16 and float16 weights up or down at random instead of to
            nearest, which at small ``lr`` loses most of an update.
        seed: seed of that randomness; a resumed run continues it.
        overrides: name patterns and group options, as in [`param_groups`][nero.param_groups];
            needs a model.
        weight_decay: accepted because trainers pass it; must be 0, since norms are fixed.
        foreach: accepted because trainers pass it; there is no foreach implementation.
        fused: ``None`` picks the fastest implementation, ``False`` the plain one, ``True`` insists on a
            fused kernel. On CPUs that is the extra ``nero-optim[cpu]``.

    Example:
        >>> model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2))
        >>> optimizer = nero.Nero(model)
        >>> model(torch.randn(5, 10)).square().mean().backward()
        >>> optimizer.step()
        >>> torch.allclose(model[0].weight.norm(dim=1), torch.ones(20))
        True
    """

    _optional_state = frozenset({"num_skipped", "radius"})
    _plan: cpu.Plan | None = None
    _plan_signature: object = None

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.01,
        beta: float = 0.999,
        *,
        bias_scale: float = 0.01,
        constraint: Sphere | str = BALANCED,
        gain_penalty: float = 0.0,
        nonfinite: Nonfinite = "skip",
        maximize: bool = False,
        stochastic_rounding: bool = False,
        seed: int = 0,
        overrides: Overrides = (),
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        warn_no_foreach(foreach)
        defaults = {
            "lr": lr,
            "beta": beta,
            "bias_scale": bias_scale,
            "constraint": constraint,
            "gain_penalty": gain_penalty,
            "nonfinite": nonfinite,
            "maximize": maximize,
            "stochastic_rounding": stochastic_rounding,
            "seed": seed,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "fused": fused,
        }
        super().__init__(params, defaults, overrides)
        if gain_penalty and not any(group["role"] == "gain" for group in self.param_groups):
            warnings.warn(
                "gain_penalty has no effect: no parameter has the role gain; pass the model instead "
                "of its parameters, so that gains are found",
                stacklevel=2,
            )

    @property
    def num_skipped(self) -> int:
        """How many neuron updates were skipped because they were not finite. Waits for the device."""
        return sum(int(state.get("num_skipped", 0)) for state in self.state.values())

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain values, so that ``weights_only=True`` can load it."""
        packed = super().state_dict()
        for group in packed["param_groups"]:
            group["constraint"] = asdict(as_constraint(group["constraint"]))
        return packed

    def _check_param(self, param: Tensor, group: Group, name: str) -> None:
        super()._check_param(param, group, name)
        reason = why_not_fused(param) if group["fused"] and param.requires_grad else None
        if reason:
            raise ValueError(
                f"fused=True, but no fused kernel can update {name}: {reason}; leave fused=None to get "
                "the fastest implementation that there is"
            )
        if group["stochastic_rounding"] and is_sharded(param):
            raise RuntimeError(
                f"{name} is sharded (a DTensor), and stochastic_rounding does not support that yet"
            )

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        check_unit_interval("beta", group["beta"])
        check_non_negative("gain_penalty", group["gain_penalty"])
        if not 0 < group["bias_scale"] < math.inf:
            raise ValueError(
                f"Invalid bias_scale value: {group['bias_scale']}; it must be positive"
            )
        if group["nonfinite"] not in NONFINITE:
            raise ValueError(f"nonfinite must be one of {NONFINITE}, not {group['nonfinite']!r}")
        if group["weight_decay"] != 0:
            raise ValueError(
                f"weight_decay must be 0 but is {group['weight_decay']}: Nero fixes the norm of every "
                "neuron, so decay has nothing to do; to regularise, see gain_penalty"
            )
        group["constraint"] = as_constraint(group["constraint"])

    def _new_state(self, param: Tensor, group: Group) -> State:
        layout = layout_from_options(group, param.shape)
        dtype = working_dtype(param.dtype)
        state = {
            "step": torch.zeros((), dtype=torch.int64, device=param.device),
            "num_skipped": torch.zeros((), dtype=torch.int64, device=param.device),
        }
        if layout.is_elementwise(param.shape):
            state["scale"] = _initial_scale(param, group["bias_scale"]).to(dtype)
            state["exp_avg_norm"] = torch.zeros_like(
                param, dtype=dtype, requires_grad=False, memory_format=torch.preserve_format
            )
            return state

        shape = layout.state_shape(param.shape)
        norm = neuron_norm(layout.view(param), fan_in_dims=layout.fan_in_dims(param.shape))
        if as_constraint(group["constraint"]).radius == "initial":
            radius = torch.where(norm > 0, norm, group["bias_scale"])
            state["radius"] = radius.to(dtype).reshape(shape)
        state["exp_avg_norm"] = torch.zeros_like(norm, dtype=dtype).reshape(shape)
        return state

    def _welcome(self, param: Tensor, group: Group, state: State) -> None:
        layout = layout_from_options(group, param.shape)
        radius = layout.view(state["radius"]) if "radius" in state else None
        project_param_(param, layout, as_constraint(group["constraint"]), radius)

    def _update(self, work: list[Work]) -> None:
        for item in work:
            if item.group["nonfinite"] == "raise" and not torch.isfinite(item.grad).all():
                raise FloatingPointError(
                    f"the gradient of {item.name} is not finite; nothing was updated"
                )
        if not self._step_by_plan(work):
            by_fused: dict[bool | None, list[Work]] = {}
            for item in work:
                by_fused.setdefault(item.group["fused"], []).append(item)
            for fused, items in by_fused.items():
                select_backend(fused=fused)(self._tasks(items))

    def _step_by_plan(self, work: list[Work]) -> bool:
        """Step by a plan that is kept while nothing else than gradients and rates change.

        ``False`` if there can be none.
        """
        fused = {group["fused"] for group in self.param_groups}
        if any(select_backend(fused=choice) not in PLANNING for choice in fused):
            return False
        if not all(cpu.is_plannable(item.param) for item in work):
            return False
        signature = (
            [_planned_options(group) for group in self.param_groups],
            [_places(item) for item in work],
        )
        if self._plan is None or signature != self._plan_signature:
            self._plan, self._plan_signature = cpu.Plan(self._tasks(work)), signature
        rates = {id(group): float(group["lr"]) for group in self.param_groups}
        self._plan.step_([item.grad for item in work], [rates[id(item.group)] for item in work])
        return True

    def _tasks(self, work: list[Work]) -> list[NeroTask]:
        options = {id(group): _options(group) for group in self.param_groups}
        return [self._task(item, options[id(item.group)]) for item in work]

    def _task(self, work: Work, options: NeroOptions) -> NeroTask:
        param, grad, state = work.param, work.grad, work.state
        average, radius = state["exp_avg_norm"], state.get("radius")
        neurons = neurons_of(work.group, param.shape, options.constraint)
        if neurons.layout.num_groups > 1:
            view = neurons.layout.view
            param, grad, average = view(param), view(grad), view(average)
            radius = None if radius is None else view(radius)
        return NeroTask(
            weight=param,
            grad=grad,
            avg_norm=average,
            step=state["step"],
            num_skipped=state["num_skipped"],
            scale=state.get("scale"),
            radius=radius,
            fan_in_dims=neurons.fan_in_dims,
            constraint=neurons.constraint,
            options=options,
            stream=work.position,
        )


class _Neurons(NamedTuple):
    """What a step needs to know of a parameter's shape."""

    layout: Layout
    fan_in_dims: tuple[int, ...]
    constraint: Sphere


def neurons_of(group: Group, shape: torch.Size, constraint: Sphere) -> _Neurons:
    """Return the neurons of a parameter; found once for every kind of it."""
    dims = group["neuron_dims"]
    key = (
        group["role"],
        dims if dims is None else tuple(dims),
        group["num_groups"],
        shape,
        constraint,
    )
    # A compiler traces through the cache, and complains of it.
    return _find_neurons.__wrapped__(*key) if torch.compiler.is_compiling() else _find_neurons(*key)


@lru_cache(maxsize=4096)
def _find_neurons(
    role: str | None,
    neuron_dims: tuple[int, ...] | None,
    num_groups: int,
    shape: torch.Size,
    constraint: Sphere,
) -> _Neurons:
    options = {"role": role, "neuron_dims": neuron_dims, "num_groups": num_groups}
    layout = layout_from_options(options, shape)
    if layout.is_elementwise(shape):
        return _Neurons(Layout("other"), (), UNCONSTRAINED)
    return _Neurons(layout, layout.fan_in_dims(shape), constraint.for_fan_in(layout.fan_in(shape)))


# The options that a plan depends on.
_planned_options = itemgetter(
    *("role", "neuron_dims", "num_groups", "beta", "constraint", "bias_scale", "gain_penalty"),
    *("maximize", "nonfinite", "stochastic_rounding", "seed", "fused"),
)


def _places(work: Work) -> tuple[object, ...]:
    """Return what a plan depends on of a parameter: where it, its gradient and its state lie, and how."""
    param, grad = work.param, work.grad
    return (
        work.position,
        param.data_ptr(),
        param.dtype,
        param.shape,
        param.stride(),
        grad.dtype,
        grad.stride(),
        *map(Tensor.data_ptr, work.state.values()),
    )


def _options(group: Group) -> NeroOptions:
    return NeroOptions(
        lr=scalar(group["lr"]),
        beta=group["beta"],
        constraint=as_constraint(group["constraint"]),
        bias_scale=group["bias_scale"],
        gain_penalty=group["gain_penalty"] if group["role"] == "gain" else 0.0,
        maximize=group["maximize"],
        nonfinite=group["nonfinite"],
        stochastic_rounding=group["stochastic_rounding"],
        seed=group["seed"],
    )


def _initial_scale(param: Tensor, bias_scale: float) -> Tensor:
    # sigma_b: mean |b|, or bias_scale where the parameter starts at zero
    scale = whole(param.to(sum_dtype(param)).abs().sum()) / max(param.numel(), 1)
    return torch.where(scale > 0, scale, bias_scale)
