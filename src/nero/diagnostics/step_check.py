"""Check one real training step against the model, under any engine.

The optimizer's own records are not trusted: layouts are inferred from the modules again, full values and
gradients are read from the model, and running averages are kept here. Every rank checks its share of the
neurons, and all of them raise the same error.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nero.core.arguments import kind_of
from nero.core.held import is_range
from nero.core.neurons import LAYOUT_KEYS, layout_from_options
from nero.core.presets import CHOSEN, as_text, find_preset, resolve_options
from nero.core.spec import READERS, Hyper
from nero.diagnostics.full_values import Full, clean_name, full_shapes, full_values, on_all_ranks
from nero.diagnostics.neurons import innermost
from nero.diagnostics.step_compare import Comparison
from nero.diagnostics.step_memory import Watched
from nero.diagnostics.step_report import StepError, StepFault, StepReport, merged
from nero.layout import Overrides
from nero.layout.groups import Choice, resolve
from nero.layout.marks import without_marks
from nero.layout.named import in_words
from nero.optim import Nero

_ENGINES = (
    "DistributedDataParallel",
    "FullyShardedDataParallel",
    "DeepSpeedEngine",
    "OptimizedModule",
)
_SAME = "if intended, pass Nero's overrides= and example= to StepCheck; if not, rebuild Nero"


class StepCheck(AbstractContextManager["StepCheck"]):
    """Check that a training step is correct for the model, the options and the gradients.

    Put it around ``optimizer.step()`` alone, after the backward pass (and after unscaling and clipping).
    It compares the model's full weights before and after, and raises one error that names every wrong
    parameter:

    - neurons are on their constraint, before the step and after it;
    - no neuron turned by more than it may: arcsin(lr) with ``norm="peak"``; with ``norm="rms"``
      arcsin(lr * sqrt((1 - beta^t) / (1 - beta))) at step t, at most 32 times lr if beta is 0.999.
      Momentum and polar directions have the same bound;
    - new weights are those of Algorithm 1, computed again in float64 from the gradients, so that a wrong
      gradient, direction, momentum or learning rate shows; and they moved if they should have;
    - parameters without a gradient did not change;
    - copies of a parameter are the same on all ranks.

    Running averages and momentum depend on all earlier gradients, so check the first few steps, with one
    object. If you start later, it begins from the optimizer's state; if an engine hides that state, it
    checks only the bounds.

    Layouts are inferred from the modules again, without what `annotate` left on the parameters. Plain
    models, DDP, FSDP2, tensor and expert parallelism (``DTensor``), FSDP1 with ``use_orig_params=True`` and
    DeepSpeed are read through public functions; every rank must take part. Turn off an engine's clipping
    inside the step. A check gathers every parameter once before and once after the step, and each rank
    keeps about 12 bytes per weight of its share in CPU memory, 20 with momentum.

    Args:
        model: the model, wrapped as it is trained.
        optimizer: [`Nero`][nero.Nero], or a trainer's wrapper of it. Parameters that belong to other
            optimizers are left out.
        overrides: as Nero got them.
        example: as Nero got it. The layouts are inferred here, so build the check before the model is
            sharded if an example decides them.

    Raises:
        StepError: at the end of the block, on all ranks, if anything is wrong; its ``report`` says what.

    Example:
        >>> from nero.diagnostics import StepCheck
        >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        >>> optimizer = nero.Nero(model)
        >>> check = StepCheck(model, optimizer)
        >>> for _ in range(3):
        ...     optimizer.zero_grad()
        ...     model(torch.randn(32, 8)).square().mean().backward()
        ...     with check:
        ...         optimizer.step()
        >>> print(check.report)
        no faults in a step of 4 parameters with 20 neurons
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        overrides: Overrides = (),
        example: Any = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, not {kind_of(model)}")
        optimizer = innermost(getattr(optimizer, "optimizer", optimizer))
        if not isinstance(optimizer, Nero):
            raise TypeError(
                f"StepCheck checks only Nero's steps, not those of {kind_of(optimizer)}: pass the "
                "Nero optimizer that trains the model, or use check_balance or TurningMonitor"
            )
        self.model, self.optimizer = model, optimizer
        self.report: StepReport | None = None
        """Of the last checked step."""
        with full_shapes(model), without_marks(model):
            choices = resolve(_unwrapped(model), overrides, example)
            self._choices = {clean_name(choice.named.name): choice for choice in choices}
            self._watched = {
                name: Watched(name, choice.named.layout.at(choice.named.param.shape), index)
                for index, (name, choice) in enumerate(self._choices.items())
            }
        self._now: dict[str, Comparison] = {}
        self._faults: list[StepFault] = []
        self._assumed: set[str] = set()

    def __enter__(self) -> "StepCheck":  # noqa: PYI034
        self._now, self._faults = {}, []
        params = {clean_name(n): p for n, p in nn.Module.named_parameters(self.model)}
        strangers = self._strangers(set(params.values()))
        with full_values(self.model, with_grads=True) as values:
            for name, full in values:
                if name in self._choices:
                    self._begin(name, params[name], full, strangers)
        if not any(now.expected is not None for now in self._now.values()) and not self._faults:
            raise RuntimeError(
                "no parameter that Nero trains has a gradient: put the check around optimizer.step(), "
                "after the backward pass"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            return
        with full_values(self.model, with_grads=False) as values:
            for name, full in values:
                if name in self._now:
                    self._faults += self._now[name].finish(full)
        self._faults += self._differing()
        self.report = self._summed_up()
        self._now = {}
        if self.report.faults:
            raise StepError(self.report)

    def _begin(self, name: str, param: Tensor, full: Full, strangers: bool) -> None:
        group = self._group_of(name, param, strangers)
        watched = self._watched[name]
        if group is None:
            if strangers and full.grad is not None:
                text = "it has a gradient, but the optimizer holds a different tensor"
                self._add(name, "outside", text, "build Nero from this model")
            return
        choice = self._settled(name, full.value.shape, group)
        wanted = self._options(choice)
        self._check_options(name, choice, group, wanted)
        options = {key: group.get(key, wanted[key]) for key in Hyper._fields}
        now = self._now[name] = Comparison(watched, full, Hyper.read(options), float(group["lr"]))
        if full.grad is not None and param.requires_grad:
            # That of a flat range is in an order of its own.
            state = {} if is_range(param) else self.optimizer.state.get(param, {})
            now.prepare(full, state, self._count(param))

    def _settled(self, name: str, shape: torch.Size, group: Mapping[str, Any]) -> Choice:
        """Compare the optimizer's layout with the model's, or take it if no module states one."""
        choice = self._choices[name]
        used = layout_from_options(group, shape)
        if used == choice.named.layout:
            return choice
        if choice.named.is_guess and name not in self._assumed:
            self._assumed.add(name)
            self._choices[name] = choice._replace(named=replace(choice.named, layout=used))
            self._watched[name].neurons = used.at(shape)
            return self._choices[name]
        has_it, says = in_words(used), in_words(choice.named.layout)
        text = f"the optimizer updates it as {has_it} instead of {says} ({choice.named.reason})"
        self._add(name, "layout", text, _SAME)
        return choice

    def _options(self, choice: Choice) -> dict[str, Any]:
        """Return the options that follow from the preset, the role and the arguments."""
        defaults, named = self.optimizer.defaults, choice.named
        given = {key: defaults[key] for key in defaults[CHOSEN]}
        return resolve_options(
            defaults["preset"],
            given,
            role=named.layout.role,
            is_output=named.is_output,
            own=choice.options,
        )

    def _check_options(
        self, name: str, choice: Choice, group: Mapping[str, Any], wanted: Mapping[str, Any]
    ) -> None:
        """Check that role-dependent options match this parameter's role."""
        preset = find_preset(self.optimizer.defaults["preset"])
        by_role = {
            key for options in (*preset.by_role.values(), preset.of_outputs) for key in options
        }
        given = {*group.get(CHOSEN, ())} - {*self.optimizer.defaults[CHOSEN]}
        own = {*choice.options} & {*Hyper._fields}
        for key in sorted((by_role - given) | own):
            expected = READERS[key](key, wanted[key])
            if group.get(key, expected) != expected:
                has_it, says = as_text({key: group[key]}), as_text({key: expected})
                role = "output" if choice.named.is_output else choice.named.layout.role
                self._add(name, "options", f"role {role!r} needs {says}, not {has_it}", _SAME)

    def _group_of(self, name: str, param: Tensor, strangers: bool) -> Mapping[str, Any] | None:
        """Return a parameter's group: by identity, or else by name or layout if an engine swapped it."""
        groups = self.optimizer.param_groups
        for group in groups:
            if any(member is param for member in group["params"]):
                return group
        if not strangers:
            return None
        for group in groups:
            if name in map(clean_name, group.get("param_names") or ()):
                return group
        layout = self._choices[name].named.layout.as_options()
        alike = [g for g in groups if {key: g.get(key) for key in LAYOUT_KEYS} == layout]
        return alike[0] if alike and "param_names" not in groups[0] else None

    def _strangers(self, params: set[Tensor]) -> bool:
        """Whether the optimizer holds tensors that are not the model's."""
        held = [p for group in self.optimizer.param_groups for p in group["params"]]
        return not held or any(param not in params for param in held)

    def _count(self, param: Tensor) -> int | None:
        """Return how many steps the optimizer has taken, according to its state."""
        states = self.optimizer.state
        own = [states[param]] if param in states else []
        # A flat range has one number per piece, and an engine leaves some ranks without any of a parameter.
        for some in (own, states.values()):
            counts = [int(s["step"].max()) for s in some if "step" in s and s["step"].numel()]
            if counts:
                return max(counts)
        return None

    def _differing(self) -> list[StepFault]:
        """Compare the values of every parameter on the ranks that should have the same."""
        mine = {name: now.watched.fingerprint for name, now in self._now.items()}
        by_rank = on_all_ranks(mine)
        for name, now in self._now.items():
            peers = [rank for rank in now.peers if len(by_rank) > 1]
            first = [
                rank for rank in peers if by_rank[rank].get(name) == by_rank[peers[0]].get(name)
            ]
            if len(first) < len(peers):
                others = ", ".join(str(rank) for rank in peers if rank not in first)
                text = f"its values on rank {others} differ from those on rank {peers[0]}"
                advice = "every rank must start with the same weights and take every step"
                now.faults.append(StepFault(name, "replicas", text, advice))
        return [f for now in self._now.values() for f in now.faults if f.kind == "replicas"]

    def _summed_up(self) -> StepReport:
        """Put together what all ranks found."""
        unknown = {name for name, now in self._now.items() if not now.is_known}
        by_rank = on_all_ranks((self._faults, unknown, self._assumed))
        checked = [now.watched.neurons for now in self._now.values()]
        return StepReport(
            faults=merged([fault for faults, _, _ in by_rank for fault in faults]),
            num_params=len(checked),
            num_neurons=sum(n.num_neurons for n in checked if not n.is_elementwise),
            bounds_only=tuple(sorted(set().union(*(names for _, names, _ in by_rank)))),
            assumed=tuple(sorted(set().union(*(names for _, _, names in by_rank)))),
        )

    def _add(self, name: str, kind: str, text: str, advice: str) -> None:
        self._faults.append(StepFault(name, kind, text, advice))


def _unwrapped(model: nn.Module) -> nn.Module:
    inner: Any = model
    while type(inner).__name__ in _ENGINES:
        inner = inner._orig_mod if hasattr(inner, "_orig_mod") else inner.module
    wrapped: nn.Module = inner
    return wrapped
