"""The base class of all optimizers here: torch's interface around a `Rule`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from nero.checks.advice import warn_of_new_momentum
from nero.checks.checkpoints import check_mapping
from nero.checks.names import named_like, named_params, param_name
from nero.checks.options import check_overrides, refuse_unknown, warn_ignored
from nero.checks.params import (
    check_has_params,
    check_param,
    check_state,
    explain_torch_errors,
    warn_no_storage,
    warn_untrainable,
)
from nero.core.held import Held
from nero.core.presets import CHOSEN
from nero.core.spec import rate_of_step
from nero.core.update import Update
from nero.hold import hold_in
from nero.layout import Overrides
from nero.layout.arrival import model_of, with_layouts
from nero.layout.given import Params
from nero.optim.checkpoint import loading
from nero.optim.options import completed, output_mark
from nero.optim.originals import Originals, as_saved, groups_of, left_of
from nero.optim.prepared import Prepared, as_update, prepare, takes_part
from nero.optim.rates import RateCopies
from nero.optim.rule import Group, New, Rule, State
from nero.optim.state import can_start, grow_state_, has_storage, moved_state, new_state


class RelativeOptimizer(Optimizer):
    """Base class of this package's optimizers: torch's interface around a `Rule`.

    State is made when a parameter is added, so checkpoints look the same before and after the first step
    and on every rank. ``load_state_dict`` keeps the dtype of the state. A parameter swapped in by a
    trainer gets state at the next step. Gradients are never written. A step at ``lr = 0`` changes nothing.
    """

    rule_type: ClassVar[type[Rule]]

    def __init__(
        self,
        params: Params,
        defaults: dict[str, Any],
        overrides: Overrides = (),
        example: Any = None,
        *,
        unknown: Mapping[str, Any] | None = None,
    ) -> None:
        options = [name for name in defaults if name != CHOSEN]
        refuse_unknown(unknown or {}, options, self.rule_type.hints, type(self).__name__)
        defaults = {"role": None, "neuron_dims": None, "num_groups": 1, **defaults}
        self._forget()
        model = model_of(params)
        if model is not None:
            check_overrides(overrides, defaults)
            if model is not params:
                self._names += [name for name, _ in model.named_parameters()]
        groups = groups_of(params, overrides, example, output_mark(defaults))
        # Torch adds groups one by one, but we check all parameters before changing any.
        self.add_param_group = self._add  # type: ignore[method-assign]
        with explain_torch_errors():
            super().__init__(groups, defaults)
        del self.add_param_group
        warn_untrainable(self.param_groups)
        self._start(self.param_groups)

    def add_param_group(self, param_group: Group) -> None:
        """Add a param group and make its state; if its parameters' stored layouts differ, it is split."""
        num_groups = len(self.param_groups)
        self._add(param_group)
        self._start(self.param_groups[num_groups:])

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient; ``closure`` computes them and returns the loss."""
        loss = None
        if closure is not None:
            if not callable(closure):
                raise TypeError(f"closure must be a function without arguments, not {closure!r}")
            with torch.enable_grad():
                loss = closure()
        is_traced = torch.compiler.is_compiling()
        num_known = 0 if is_traced else len(self.state)
        if not is_traced:
            self._shapes.check(self.param_groups, self.state)
            self._rates.follow(self.defaults["lr"])
        updates: list[Update] = []
        position = 0
        for group in self.param_groups:
            options, lr = self._options_of(group), rate_of_step(group["lr"])
            for place, param in enumerate(group["params"]):
                # Under torch.compile, cached values would need guards.
                prepared = None if is_traced else self._prepared.get(param)
                state: State = self.state.get(param, {})
                tensor = param.dtype, param.device, param.shape
                is_current = prepared and prepared.options is options and prepared.tensor == tensor
                if not (is_current and state):
                    prepared, state = self._renew(param, group, param_name(group, place))
                if prepared is not None and takes_part(prepared, param, grad := param.grad):
                    if tuple(state) != prepared.state_keys:
                        state = self._grown_state(prepared, state)
                    update = as_update(prepared, param, grad, state, lr, position)
                    if not is_traced and update.grad.is_neg():  # kernels ignore the negative bit
                        update = update._replace(grad=update.grad.resolve_neg())
                    updates.append(update)
                position += 1
        if not is_traced and len(self.state) > num_known:
            self._drop_swapped()  # new parameters have appeared, so old ones may have been swapped out
        if not is_traced and len(self._prepared) > position:
            for param in left_of(self._prepared, self._members()):  # of groups that were removed
                del self._prepared[param]
            self._shapes.forget_others(self.param_groups)
        if self._grown:
            warn_of_new_momentum(self._grown[0])
            self._grown.clear()
        self.rule.step(updates, self.param_groups)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the parameters that are in the groups now.

        If a trainer has swapped parameters, as for sharding, the state of the old ones is dropped and the
        new ones get fresh state, so that a checkpoint can be loaded into it. Nothing is projected.
        """
        self._shapes.check(self.param_groups, self.state)
        if self._drop_swapped():
            for group in self.param_groups:
                for param in group["params"]:
                    if param.requires_grad and not param.is_meta and not self.state.get(param):
                        self.state[param] = self.fresh_state(param, group)
        return as_saved(super().state_dict(), self.param_groups)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load optimizer state exactly: unlike in torch, state keeps its own dtype.

        Parameters are matched by name, or by position if names are missing. Layouts come from the model,
        everything else from the checkpoint; options missing in an old checkpoint keep their current values.
        """
        self._shapes.check(self.param_groups, self.state, is_loading=True)
        check_mapping(state_dict)
        with loading(self, self._names):
            super().load_state_dict(state_dict)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._forget()
        super().__setstate__(state)
        self._shapes.note(self.param_groups)
        defaults = {k: v for k, v in self.defaults.items() if k != "differentiable"}  # torch's own
        for group in self.param_groups:
            group.update(defaults | group)

    def check_group_(self, group: Group) -> None:
        """Validate the options of ``group``, and replace them with their parsed values."""
        group["lr"] = self._rates.read(group["lr"], self.defaults["lr"])
        options = self.rule.read(group)
        group.update(options if isinstance(options, dict) else options._asdict())

    def fresh_state(self, param: Tensor, group: Group) -> State:
        """Return the initial state of ``param`` in ``group``."""
        return self._new_state(self._prepare(hold_in(group, param), group, ""))

    def renew_state(self, groups: Sequence[Group]) -> None:
        """Make new state for parameters that were changed before their first step."""
        for group in groups:
            for param in group["params"]:
                state: State = self.state.get(param, {})
                if state and not state["step"].is_meta and not state["step"].any():
                    self.state[param] = self.fresh_state(param, group)

    def _forget(self) -> None:
        """Reset all caches; groups and state are kept."""
        self.rule = self.rule_type()
        self._held: dict[Tensor, Held] = {}  # of new parameters
        self._prepared: dict[Tensor, Prepared] = {}
        self._options: dict[int, tuple[Any, list[Any]]] = {}  # as last read, by group
        self._names: list[str] = getattr(self, "_names", [])  # loading leaves them as they are
        self._rates = RateCopies()
        self._grown: list[str] = []
        self._shapes = Originals()

    def _add(self, param_group: Group) -> None:
        """Add a param group; everything is checked before anything changes."""
        check_has_params(param_group)
        num_groups = len(self.param_groups)
        parts: Sequence[Any] = [param_group]
        try:
            if isinstance(param_group, Mapping):
                parts = with_layouts(parts, output_mark(self.defaults))
                parts = [completed(part, self.defaults) for part in parts]
            for part in parts:
                with explain_torch_errors():
                    super().add_param_group(named_like(self.param_groups, part))
                group = self.param_groups[-1]
                warn_ignored(group, self.rule.hints)
                self.check_group_(group)
                for param, name in named_params(group):
                    self._held[param] = self._check_param(param, group, name)
        except Exception:
            self._held.clear()
            del self.param_groups[num_groups:]
            raise

    def _check_param(self, param: Tensor, group: Group, name: str) -> Held:
        has_neurons, fused = self.rule.sums_over == "neuron", group.get("fused")
        return check_param(param, group, name, has_neurons=has_neurons, fused=fused)

    def _start(self, groups: Sequence[Group]) -> None:
        """Create missing state for the parameters of these groups, and let the rule start them."""
        self._shapes.note(groups)
        new = []
        for group in groups:
            for param, name in named_params(group):
                if can_start(param) and not has_storage(self.state.get(param, {})):
                    held = self._held.get(param) or hold_in(group, param)
                    prepared = self._prepared[param] = self._prepare(held, group, name)
                    new.append(New(held, prepared.hyper, self._new_state(prepared)))
        if new:
            with torch.no_grad():
                self.rule.start(new, self.param_groups)
        self.state.update((held.param, state) for held, _, state in new)
        self._held.clear()

    def _renew(self, param: Tensor, group: Group, name: str) -> tuple[Prepared | None, State]:
        """Prepare a parameter that is new or has changed, and return it with its state.

        A frozen parameter, or one without storage, has no state and is not prepared.
        """
        state: State = self.state.get(param, {})
        if has_storage(state):
            moved = moved_state(state, self.rule.state, param, self._options_of(group)[0])
            if moved is not state:
                self.state[param] = state = moved
        elif can_start(param):
            members = [(each, *pair) for each in self.param_groups for pair in named_params(each)]
            for owner, member, its_name in members:
                if not self.state.get(member):
                    self._held[member] = self._check_param(member, owner, its_name)
            self._start(self.param_groups)  # others may be new, too
            return self._prepared[param], self.state[param]
        if param.grad is None and param.is_meta:
            warn_no_storage(name)
        if not state:
            return None, state
        if torch.compiler.is_compiling():
            return self._prepare(hold_in(group, param), group, name), state
        held = self._check_param(param, group, name)
        check_state(state, self.rule.state, held.neurons, name)
        prepared = self._prepared[param] = self._prepare(held, group, name)
        return prepared, state

    def _prepare(self, held: Held, group: Group, name: str) -> Prepared:
        return prepare(self.rule, held, group, self._options_of(group), name)

    def _new_state(self, prepared: Prepared) -> State:
        return new_state(self.rule.state, prepared.held, prepared.hyper, prepared.state_keys)

    def _grown_state(self, prepared: Prepared, state: State) -> State:
        """Update the state after options have changed, and return the part that the step needs."""
        keys, specs = prepared.state_keys, self.rule.state
        added = grow_state_(state, specs, prepared.held, prepared.hyper, keys, prepared.name)
        is_large = any(specs[key].shape == "per element" for key in added)
        if is_large and not torch.compiler.is_compiling():
            self._grown.append(prepared.name)
        return {key: state[key] for key in keys}

    def _options_of(self, group: Group) -> tuple[Any, list[Any]]:
        """Return a group's options as the rule reads them: the same object until an option changes."""
        values = [group.get(k) for k in (*self.rule.options, "role", "neuron_dims", "num_groups")]
        if torch.compiler.is_compiling():
            return self.rule.read(group), values
        known = self._options.get(id(group))
        if known is None or known[1] != values:
            known = self._options[id(group)] = self.rule.read(group), values
        return known

    def _members(self) -> set[Tensor]:
        return {param for group in self.param_groups for param in group["params"]}

    def _drop_swapped(self) -> bool:
        """Drop the state of parameters that left the groups; return whether there were any."""
        left = left_of(self.state, self._members())
        for key in left:
            del self.state[key]
            self._prepared.pop(key, None)
        return bool(left)
