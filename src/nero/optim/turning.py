"""Nero's rule: its options, state and step."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch

from nero.backends import new_backends, operator, plain
from nero.checks.finite import check_finite
from nero.checks.flattened import check_engine_steps
from nero.checks.trained import LoadWatch, layers_of, warn_if_trained
from nero.core.neurons import Neurons
from nero.core.spec import READERS, STATE, Hyper, flag, non_negative
from nero.core.update import Update
from nero.optim.directions import follow_directions
from nero.optim.rule import Group, New, Rule
from nero.projection import project_held_


class Turning(Rule):
    """Turn every neuron along its direction, and project it back onto its sphere."""

    options: ClassVar = {**READERS, "fused": flag, "weight_decay": non_negative}
    state = STATE
    sums_over = "neuron"
    hints: ClassVar = {
        "betas": "pass betas[0] as momentum= and betas[1] as beta=",
        "eps": "Nero never divides by zero; leave it out",
        "capturable": "leave it out: a step can be captured, with lr= a tensor on the GPU",
        "learning_rate": "it is called lr=",
        "total_steps": "pass the length of the run to nero.cosine_schedule, as num_steps=",
        "num_steps": "pass it to nero.cosine_schedule",
        "amsgrad": "Nero has no such option; leave it out",
        "nesterov": "leave it out and pass momentum=, which is already Nesterov-style",
        "dampening": "Nero has no such option; leave it out",
    }
    missing: ClassVar = {"norm": "rms"}

    def __init__(self) -> None:
        self._backends, self._summing_backends = new_backends(), new_backends()
        self._watch = LoadWatch()

    def read(self, group: Mapping[str, Any]) -> Hyper:
        """Return a group's options, or raise if one is invalid."""
        if group["fused"] is not None:
            flag("fused", group["fused"])
        if group["weight_decay"] != 0:
            names = group.get("param_names") or ["its first parameter"]
            raise ValueError(
                f"weight_decay must be 0 but is {group['weight_decay']!r} in the group of {names[0]}: "
                "Nero fixes the norm of every neuron, so weight decay would have no effect; set it "
                "to 0. To regularize, see gain_penalty"
            )
        return Hyper.read(group)

    def at(self, options: Hyper, neurons: Neurons) -> Hyper:
        """Return the options that apply to these neurons."""
        return options.for_neurons(neurons)

    def start(self, new: Sequence[New], groups: Sequence[Group]) -> None:
        """Project new parameters; warn before if they look trained."""
        if not torch.compiler.is_compiling():
            warn_if_trained(layers_of(groups, among={held.param: held for held, _, _ in new}))
            self._watch = LoadWatch()
        for held, hyper, state in new:
            radius = held.neurons.view(state["radius"]) if "radius" in state else None
            project_held_(held, hyper.constraint, radius)

    def step(self, updates: list[Update], groups: Sequence[Group]) -> None:
        """Turn all neurons that have a gradient."""
        is_traced = torch.compiler.is_compiling()
        if not is_traced:
            self._watch.before_step(groups)
            if not any(update.has_grad for update in updates):
                check_engine_steps(groups)
        flat = [update for update in updates if update.flat is not None]
        updates = [update for update in updates if update.flat is None] if flat else updates
        # Even without gradients here, other ranks may have some, and all have to agree.
        if (updates or not flat) and any(group["nonfinite"] == "raise" for group in groups):
            check_finite(updates, groups)
        if any(update.hyper.direction != "gradient" for update in updates):
            updates = follow_directions(updates)
        shared = [update for update in updates if update.reduce_over]
        if flat:
            from nero.distributed.flat import step_

            step_(flat)
        if shared:
            from nero import distributed

            summing = self._summing_backends
            backends = dict.fromkeys(summing, plain) if is_traced else summing
            distributed.step_(shared, backends)
            updates = [update for update in updates if not update.reduce_over]
        for name in dict.fromkeys([update.backend for update in updates]):
            mine = [update for update in updates if update.backend == name]
            if name != "plain" and is_traced:
                operator.step_(mine, name)
            else:
                self._backends[name].step_(mine)
        if not is_traced:
            self._watch.after_step()
