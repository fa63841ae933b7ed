"""The Nero optimizer."""

from dataclasses import asdict
from typing import Any, NoReturn

import torch
from torch import Tensor

from nero.checks.advice import (
    advise_on_idle_options,
    advise_on_lr,
    advise_on_num_steps,
    advise_on_peak,
)
from nero.checks.options import warn_no_foreach
from nero.checks.outputs import warn_maybe_output, warn_without_outputs
from nero.core.neurons import neurons_from_options
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
from nero.layout import Overrides
from nero.layout.arrival import model_of
from nero.layout.description import groups_table
from nero.layout.given import Params
from nero.optim.base import RelativeOptimizer
from nero.optim.options import adopt_, output_mark
from nero.optim.rule import Group
from nero.optim.turning import Turning


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

    Construction projects the weights onto the constraint, so build the optimizer after the weights
    are initialized, and see ``constraint`` for pretrained ones.

    Args:
        params: a model, whose modules tell what its neurons are, or ``model.parameters()``, which leads to
            it. Lists and groups of parameters keep what [`annotate`][nero.annotate] left on them; without
            it their neurons are read from shapes, with a warning.
        lr: the angle in radians through which neurons turn at a step; 0.01 unless a preset says otherwise.
            AdamW moves every weight by about its rate, which turns a neuron of root-mean-square weight s by
            about lr / s: 3e-4 is 0.015 rad where weights begin with a deviation of 0.02.
        beta: how much of the running norm of gradients stays at a step; 0.999 unless a preset says
            otherwise.
        norm: what a gradient is divided by. ``"rms"`` is the paper's running mean square. ``"peak"`` is the
            largest norm so far, forgotten at the rate of ``beta``: then ``lr`` is the largest angle by
            which any neuron turns at a step, even one that was idle for long. ``beta`` must exceed
            ``momentum``.
        preset: ``"paper"``, or for the networks of today ``"rows"``: a momentum of 0.9, embeddings of norm
            sqrt(dim), and a rate of 0.03; or ``"polar"``: the same, along polar directions in hidden
            layers. Arguments that you give win over it; ``None`` means "not chosen" for every option.
        num_steps: how many steps the run will take. The rate of ``"polar"`` is then 0.03 times the cube
            root of 600 / num_steps, measured on runs of 300 to 3,000 steps: outside of them you get a
            warning. Other presets have one learning rate.
        momentum: averaging constant of the gradient itself; the paper has none. Neurons then turn
            along the average, a step ahead as Nesterov has it, and ``beta`` averages the norm of that. It
            costs a state of the parameter's size.
        momentum_dtype: how that state is kept: in ``"float32"`` (float64 for float64 weights), or in
            ``"bfloat16"``, which halves it. It is then rounded stochastically, because small changes of an
            average are lost when it is rounded to nearest.
        direction: what neurons turn along: their row of the ``"gradient"`` or of its average, the row of
            the ``"polar"`` factor of their whole layer, as in Muon, or a direction of your own
            ([`register_direction`][nero.register_direction]). Embeddings always follow the gradient. The
            polar factor costs five rounds of matrix products.
        bias_scale: the scale of parameters without fan-in that start at zero; 0.01 by default.
        constraint: where neurons live: a [`Sphere`][nero.Sphere] or ``"balanced"``, ``"norm"``,
            ``"mean"``, ``"none"``, or ``"initial"`` for fine-tuning pretrained weights. By default
            balanced, with a warning if the weights look trained.
        gain_penalty: strength of a quadratic penalty that pulls gains towards one (section 5.6).
        nonfinite: what to do with a neuron whose gradient is NaN or inf: ``"skip"`` it and count it in
            `num_skipped` (the default), ``"raise"`` before anything changes, or ``"propagate"``. Where
            parameters are sharded, all ranks raise or none, by one small all-reduce per process group and
            step. Parameters that are not sharded are assumed to have equal gradients on all ranks, as DDP
            leaves them.
        maximize: maximize the objective instead of minimizing it.
        stochastic_rounding: round bfloat16 and float16 weights up or down at random instead of to
            nearest, which at small ``lr`` loses most of an update.
        seed: seed of all stochastic rounding; a resumed run continues it.
        overrides: name patterns and group options, as in [`param_groups`][nero.param_groups];
            needs a model.
        example: a batch, or whatever the model is called with: one forward pass without values finds the
            neurons of modules that nobody registered ([`observe`][nero.layout.observation.observe]).
        weight_decay: accepted because trainers pass it; must be 0, since norms are fixed.
        foreach: accepted because trainers pass it; there is no foreach implementation.
        fused: ``None`` picks the fastest implementation, ``False`` the plain one, ``True`` insists on a
            fused kernel. On CPUs that is the extra ``nero-optim[cpu]``, on GPUs one in Triton, which is
            tested against the plain one before its first step on a device: if they differ, ``None`` warns
            and takes the plain one, and ``True`` raises.

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
        num_steps: int | None = None,
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
            "lr": read_rate(preset, lr, num_steps),
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
        advise_on_num_steps(preset, lr, num_steps)
        defaults = {
            **resolve_options(preset, given),
            "preset": preset,
            CHOSEN: tuple(sorted(name for name, value in given.items() if value is not None)),
            "weight_decay": 0.0 if weight_decay is None else weight_decay,
            "foreach": foreach,
            "fused": fused,
        }
        model = model_of(params)  # before its parameters are taken
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
        """How many neuron updates were skipped because they were not finite.

        Counted since this object was made, or since it loaded a checkpoint. Waits for the device. With
        sharded parameters it communicates: ask on every rank.
        """
        counts = [
            (param, neurons_from_options(group, param.shape), self.state[param]["num_skipped"])
            for group in self.param_groups
            for param in group["params"]
            if "num_skipped" in self.state.get(param, {})
        ]
        if any(is_sharded(param) for param, _, _ in counts):
            from nero.distributed import total_count

            return total_count(counts)
        return sum(int(count) for _, _, count in counts)

    def __repr__(self) -> str:
        """Return one line per param group: what it holds, and the options that act on it."""
        return f"Nero(preset={self.defaults['preset']!r})\n{groups_table(self.param_groups)}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "defaults" in state:  # of a pickle, which may be older than an option
            defaults = {**Hyper._field_defaults, "preset": "paper", **state["defaults"]}
            defaults.setdefault(CHOSEN, chosen_names(defaults["preset"], defaults))
            state = {**state, "defaults": defaults}
        super().__setstate__(state)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors and plain values, so that ``weights_only=True`` can load it.

        Without `num_skipped`, which every rank counts for itself.
        """
        packed = super().state_dict()
        for group in packed["param_groups"]:
            group["constraint"] = asdict(as_constraint(group["constraint"]))
            group["momentum_dtype"] = momentum_dtype_name("momentum_dtype", group["momentum_dtype"])
        for index, state in packed["state"].items():
            packed["state"][index] = {k: v for k, v in state.items() if k != "num_skipped"}
        return packed

    def add_param_group(self, param_group: Group) -> None:
        """Add a param group; options that it leaves out, or has as ``None``, follow from its roles."""
        num_groups = len(self.param_groups)
        super().add_param_group(param_group)
        advise_on_lr(self.param_groups[num_groups:], self.defaults["preset"])
        advise_on_peak(self.param_groups[num_groups:])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load optimizer state, bit for bit: unlike torch's, state keeps its own dtype.

        Parameters are matched by name, or by position if names are missing. Options come from the
        checkpoint, and groups added later get them, too; layouts come from the model. An old checkpoint
        without ``norm`` holds ``"rms"``; other options that it lacks keep their present values.
        """
        super().load_state_dict(state_dict)
        adopt_(self.defaults, self.param_groups)
