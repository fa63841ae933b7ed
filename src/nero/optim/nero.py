"""The Nero optimizer."""

from dataclasses import asdict
from typing import Any, NoReturn

import torch
from torch import Tensor

from nero.checks.advice import advise_on_idle_options, advise_on_lr, advise_on_peak
from nero.checks.options import warn_no_foreach
from nero.checks.outputs import warn_maybe_output, warn_without_outputs
from nero.core.held import is_range
from nero.core.presets import (
    CHOSEN,
    PresetName,
    chosen_names,
    find_preset,
    read_rate,
    resolve_options,
)
from nero.core.sharding import is_sharded
from nero.core.spec import Hyper, MomentumDtype, Nonfinite, Norm, momentum_dtype_name
from nero.core.sphere import Sphere, as_constraint
from nero.hold import hold_in
from nero.layout import Overrides
from nero.layout.arrival import model_of
from nero.layout.description import groups_table
from nero.layout.given import Params
from nero.optim.base import RelativeOptimizer
from nero.optim.options import adopt_, output_mark
from nero.optim.originals import skipped_in_ranges, whole_params
from nero.optim.rule import Group
from nero.optim.turning import Turning


class Nero(RelativeOptimizer):
    r"""The Nero optimizer: turns balanced neurons by an angle (Liu et al. 2021, Algorithm 1).

    For each neuron with weights $w$ and gradient $g$:

    $$
    \bar g^2 \leftarrow \beta\,\bar g^2 + (1-\beta)\,\|g\|^2 \qquad
    w \leftarrow w - \eta\,\frac{\|w\|}{\bar g}\,g \qquad
    w \leftarrow w - \tfrac1n\textstyle\sum_i w_i \qquad
    w \leftarrow w/\|w\|
    $$

    with Adam's bias correction of $\bar g$. Biases, gains and other parameters without fan-in step by
    $\eta\,\sigma_b/\bar g_b\cdot g_b$, where $\sigma_b$ is their initial scale.

    The constructor projects the weights onto the constraint, so build the optimizer after initializing the
    weights. For pretrained weights, see ``constraint``.

    Args:
        params: a model or ``model.parameters()``; neurons are found from the model's modules. Lists and
            groups of parameters use the layouts left by [`annotate`][nero.annotate]; without them, layouts
            are guessed from shapes, with a warning.
        lr: the angle in radians by which a neuron turns per step. The default is 0.01, or the preset's.
            AdamW moves every weight by about its learning rate, which turns a neuron of root-mean-square
            weight s by about lr / s: 3e-4 is 0.015 rad for weights of standard deviation 0.02.
        beta: decay rate of the running gradient norm. The default is 0.999, or the preset's.
        norm: the gradient norm to divide by. ``"rms"`` is the paper's running root mean square. ``"peak"``
            is the largest recent norm, which decays at rate ``beta``; no neuron then turns by more than
            ``lr`` per step, even after being idle. It requires ``beta`` > ``momentum``.
        preset: a named set of options. ``"paper"`` is the default. ``"rows"`` suits modern networks:
            momentum 0.9, embeddings of norm sqrt(dim), and lr 0.03. ``"polar"`` adds polar directions in
            hidden layers. Your arguments override the preset; ``None`` means "not chosen" for every option.
        momentum: decay rate of the momentum buffer; the paper has none. Neurons turn against the buffer,
            looking one step ahead as in Nesterov momentum, and ``norm`` applies to that direction. The
            buffer is as large as the parameter.
        momentum_dtype: dtype of the momentum buffer: ``"float32"`` (float64 for float64 weights) or
            ``"bfloat16"``, which halves it and rounds stochastically, since rounding to nearest loses small
            changes.
        direction: the direction against which neurons turn. ``"gradient"`` is the gradient or the momentum
            buffer. ``"polar"`` is the polar factor of the whole layer, as in Muon, at the cost of five
            rounds of matrix products. You can also [register your own][nero.register_direction]. Embeddings
            always follow the gradient.
        bias_scale: scale of parameters without fan-in that start at zero; 0.01 by default.
        constraint: a [`Sphere`][nero.Sphere], or ``"balanced"`` (mean zero and norm one, the default),
            ``"norm"``, ``"mean"``, ``"none"``, or ``"initial"`` for pretrained weights. The default warns
            if the weights look trained.
        gain_penalty: strength of a quadratic penalty that pulls gains towards one (section 5.6).
        nonfinite: what to do with a neuron whose gradient contains NaN or inf. ``"skip"``, the default,
            skips it and counts it in `num_skipped`. ``"raise"`` raises before anything changes. With
            sharded parameters, all ranks raise or none, at the cost of one small all-reduce per process
            group and step. ``"propagate"`` lets it spread. Unsharded parameters are assumed to have
            the same gradients on all ranks, as under DDP.
        maximize: maximize the objective instead of minimizing it.
        stochastic_rounding: round bfloat16 and float16 weights stochastically. Rounding to nearest loses
            most of an update at small ``lr``.
        seed: seed of all stochastic rounding; a resumed run continues its noise.
        overrides: name patterns and group options, as in [`param_groups`][nero.param_groups];
            needs a model.
        example: a batch, or any input of the model. One forward pass on fake tensors then finds the neurons
            of unregistered modules ([`observe`][nero.layout.observation.observe]).
        weight_decay: accepted because trainers pass it; must be 0, since norms are fixed.
        foreach: accepted because trainers pass it; there is no foreach implementation.
        fused: ``None`` picks the fastest implementation, ``False`` the plain one, and ``True`` requires a
            fused kernel. CPUs need the extra ``nero-optim[cpu]``. GPUs use Triton, whose kernel is tested
            against the plain update before its first step on a device. If they differ, ``None`` warns and
            uses the plain one, and ``True`` raises.

    Example:
        >>> model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2))
        >>> optimizer = nero.Nero(model)
        >>> model(torch.randn(5, 10)).square().mean().backward()
        >>> optimizer.step()
        >>> torch.allclose(model[0].weight.norm(dim=1), torch.ones(20))
        True
    """

    rule_type = Turning

    def __init__(
        self,
        params: Params,
        lr: float | Tensor | None = None,
        beta: float | None = None,
        *,
        norm: Norm | None = None,
        preset: PresetName = "paper",
        momentum: float | None = None,
        momentum_dtype: MomentumDtype | torch.dtype | None = None,
        direction: str | None = None,
        bias_scale: float | None = None,
        constraint: Sphere | str | None = None,
        gain_penalty: float | None = None,
        nonfinite: Nonfinite | None = None,
        maximize: bool | None = None,
        stochastic_rounding: bool | None = None,
        seed: int | None = None,
        overrides: Overrides = (),
        example: Any = None,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        fused: bool | None = None,
        **unknown: NoReturn,
    ) -> None:
        warn_no_foreach(foreach)
        if isinstance(beta, tuple | list):
            raise TypeError(f"beta must be a number, not {beta!r}: {self.rule_type.hints['betas']}")
        given = {
            "lr": read_rate(lr),
            "beta": beta,
            "norm": norm,
            "momentum": momentum,
            "momentum_dtype": momentum_dtype,
            "direction": direction,
            "bias_scale": bias_scale,
            "constraint": None if constraint is None else as_constraint(constraint),
            "gain_penalty": gain_penalty,
            "nonfinite": nonfinite,
            "maximize": maximize,
            "stochastic_rounding": stochastic_rounding,
            "seed": seed,
        }
        defaults = {
            **resolve_options(preset, given),
            "preset": preset,
            CHOSEN: tuple(sorted(name for name, value in given.items() if value is not None)),
            "weight_decay": 0.0 if weight_decay is None else weight_decay,
            "foreach": foreach,
            "fused": fused,
        }
        model = model_of(params)  # before its parameters are taken
        with whole_params(model):
            super().__init__(params, defaults, overrides, example, unknown=unknown)
        if output_mark(self.defaults):
            warn_without_outputs(self.param_groups, preset)
        if example is None and find_preset(preset).by_role and constraint is None:
            warn_maybe_output(self.param_groups, model, preset)
        advise_on_lr(self.param_groups, preset)
        advise_on_peak(self.param_groups)
        advise_on_idle_options(self.param_groups, gain_penalty)

    @property
    def num_skipped(self) -> int:
        """Number of neuron updates skipped because they were not finite.

        Counts from construction, or from the last loaded checkpoint. Reading it waits for the device.
        With sharded parameters it communicates, so read it on every rank.
        """
        counts = [
            (param, hold_in(group, param).neurons, self.state[param]["num_skipped"])
            for group in self.param_groups
            for param in group["params"]
            if "num_skipped" in self.state.get(param, {}) and not is_range(param)
        ]
        in_ranges = skipped_in_ranges(self.state)
        if any(is_sharded(param) for param, _, _ in counts):
            from nero.distributed import total_count

            return in_ranges + total_count(counts)
        return in_ranges + sum(int(count) for _, _, count in counts)

    def __repr__(self) -> str:
        """Return one line per param group: its size, and the options that act on it."""
        return f"Nero(preset={self.defaults['preset']!r})\n{groups_table(self.param_groups)}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "defaults" in state:  # of a pickle, which may be older than an option
            defaults = {**Hyper._field_defaults, "preset": "paper", **state["defaults"]}
            defaults.setdefault(CHOSEN, chosen_names(defaults["preset"], defaults))
            state = {**state, "defaults": defaults}
        super().__setstate__(state)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain values, so that ``weights_only=True`` can load it.

        It leaves out `num_skipped`, which each rank counts for itself.
        """
        packed = super().state_dict()
        for group in packed["param_groups"]:
            group["constraint"] = asdict(as_constraint(group["constraint"]))
            group["momentum_dtype"] = momentum_dtype_name("momentum_dtype", group["momentum_dtype"])
        for index, state in packed["state"].items():
            packed["state"][index] = {k: v for k, v in state.items() if k != "num_skipped"}
        return packed

    def add_param_group(self, param_group: Group) -> None:
        """Add a param group; its role decides options that are missing or ``None``."""
        num_groups = len(self.param_groups)
        super().add_param_group(param_group)
        advise_on_lr(self.param_groups[num_groups:], self.defaults["preset"])
        advise_on_peak(self.param_groups[num_groups:])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load optimizer state exactly: unlike in torch, state keeps its own dtype.

        Parameters are matched by name, or by position if names are missing. Layouts come from the model,
        options from the checkpoint, also for groups added later. An old checkpoint without ``norm`` means
        ``"rms"``; other options missing from it keep their current values.
        """
        super().load_state_dict(state_dict)
        adopt_(self.defaults, self.param_groups)
