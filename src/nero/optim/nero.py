"""The Nero optimiser."""

import math
import warnings
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from nero import backends
from nero.backends import NONFINITE, Nonfinite, why_not_fused
from nero.functional import (
    BALANCED,
    Sphere,
    as_constraint,
    neuron_norm,
    sum_dtype,
    working_dtype,
)
from nero.functional.sharding import is_sharded, local_of, whole
from nero.layout import Layout, Overrides, layout_from_options
from nero.optim.base import Group, Params, RelativeOptimizer, State, Work
from nero.optim.checks import check_non_negative, check_unit_interval, warn_no_foreach
from nero.optim.kept_plan import KeptPlan
from nero.optim.projection import project_param_
from nero.optim.shared import step_shared_
from nero.optim.tasks import tasks_of


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
        fused: ``None`` picks the fastest implementation that has been tried on the device, ``False`` the
            plain one, ``True`` insists on a fused kernel. On CPUs that is the extra ``nero-optim[cpu]``,
            on GPUs one in Triton that ``None`` does not pick yet.

    Example:
        >>> model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2))
        >>> optimizer = nero.Nero(model)
        >>> model(torch.randn(5, 10)).square().mean().backward()
        >>> optimizer.step()
        >>> torch.allclose(model[0].weight.norm(dim=1), torch.ones(20))
        True
    """

    _optional_state = frozenset({"num_skipped", "radius"})

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
        self._kept_plan = KeptPlan()
        super().__init__(params, defaults, overrides)
        if gain_penalty and not any(group["role"] == "gain" for group in self.param_groups):
            warnings.warn(
                "gain_penalty has no effect: no parameter has the role gain; pass the model instead "
                "of its parameters, so that gains are found",
                stacklevel=2,
            )

    @property
    def num_skipped(self) -> int:
        """How many neuron updates were skipped because they were not finite.

        Counted since this object was made, or since it loaded a checkpoint.

        Waits for the device. With sharded parameters it communicates: ask on every rank.
        """
        counts = [
            (param, layout_from_options(group, param.shape), self.state[param]["num_skipped"])
            for group in self.param_groups
            for param in group["params"]
            if "num_skipped" in self.state.get(param, {})
        ]
        if any(is_sharded(param) for param, _, _ in counts):
            from nero.distributed import total_count

            return total_count(counts)
        return sum(int(count) for _, _, count in counts)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._kept_plan = KeptPlan()

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain values, so that ``weights_only=True`` can load it.

        Without `num_skipped`, which every rank counts for itself.
        """
        packed = super().state_dict()
        for group in packed["param_groups"]:
            group["constraint"] = asdict(as_constraint(group["constraint"]))
        for index, state in packed["state"].items():
            packed["state"][index] = {k: v for k, v in state.items() if k != "num_skipped"}
        return packed

    def _check_param(self, param: Tensor, group: Group, name: str) -> None:
        super()._check_param(param, group, name)
        reason = why_not_fused(local_of(param)) if group["fused"] and param.requires_grad else None
        if is_sharded(param):
            from nero import distributed

            layout = layout_from_options(group, param.shape)
            distributed.check_param(param, layout, name)  # type: ignore[arg-type]
            if group["stochastic_rounding"]:
                raise RuntimeError(
                    f"{name} is sharded (a DTensor), and stochastic_rounding does not support that yet"
                )
            if group["fused"] and distributed.fan_in_groups(param, layout):  # type: ignore[arg-type]
                reason = "its neurons are cut, and ranks share them"
        if reason:
            raise ValueError(
                f"fused=True, but no fused kernel can update {name}: {reason}; leave fused=None to get "
                "the fastest implementation that there is"
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

        state["exp_avg_norm"] = _zero_per_neuron(param, layout, dtype)
        if as_constraint(group["constraint"]).radius == "initial":
            norm = _norm_per_neuron(param, layout)
            state["radius"] = torch.where(norm > 0, norm, group["bias_scale"]).to(dtype)
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
        if any(is_sharded(param) for group in self.param_groups for param in group["params"]):
            work = step_shared_(work, self.param_groups, self.state)
        if not self._kept_plan.step_(work, self.param_groups):
            by_fused: dict[bool | None, list[Work]] = {}
            for item in work:
                by_fused.setdefault(item.group["fused"], []).append(item)
            for fused, items in by_fused.items():
                backends.select_backend(fused=fused)(tasks_of(items))


def _zero_per_neuron(param: Tensor, layout: Layout, dtype: torch.dtype) -> Tensor:
    if is_sharded(param):
        from nero.distributed import per_neuron

        return per_neuron(param, layout, dtype=dtype, device=param.device)  # type: ignore[arg-type]
    return torch.zeros(layout.state_shape(param.shape), dtype=dtype, device=param.device)


def _norm_per_neuron(param: Tensor, layout: Layout) -> Tensor:
    if is_sharded(param):
        from nero.distributed import neuron_norm_of

        return neuron_norm_of(param, layout)  # type: ignore[arg-type]
    norm = neuron_norm(layout.view(param), fan_in_dims=layout.fan_in_dims(param.shape))
    return norm.view(layout.state_shape(param.shape))


def _initial_scale(param: Tensor, bias_scale: float) -> Tensor:
    # sigma_b: mean |b|, or bias_scale where the parameter starts at zero
    scale = whole(param.to(sum_dtype(param)).abs().sum()) / max(param.numel(), 1)
    return torch.where(scale > 0, scale, bias_scale)
