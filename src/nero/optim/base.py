"""What all optimisers here share: strict inputs, eager state, exact resume."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeAlias, overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nero.core.neurons import LAYOUT_KEYS, LayoutError, Neurons, neurons_from_options
from nero.core.precision import finite_part
from nero.core.presets import CHOSEN
from nero.core.sharding import is_sharded, to_local
from nero.core.spec import StateSpec
from nero.core.sphere import neuron_norm
from nero.core.update import Places, Update
from nero.layout import Overrides
from nero.layout.arrival import model_of, with_layouts
from nero.layout.groups import grouped, resolve
from nero.optim.advice import warn_of_new_momentum
from nero.optim.checkpoint import (
    check_groups,
    check_mapping,
    check_origin,
    check_state_dict,
    matched_by_name,
    merged_group,
    named_by_order,
    restart_statistics_,
    restored_state,
    warn_of_restart,
    warn_of_roles,
)
from nero.optim.checks import (
    advice_to_torchs_errors,
    check_has_params,
    check_overrides,
    check_param,
    check_params,
    named_like,
    named_params,
    param_name,
    raise_sparse,
    rate_of_step,
    read_lr,
    refuse_unknown,
    warn_ignored,
    warn_no_storage,
    warn_untrainable,
)
from nero.optim.flattened import SeenShapes

Params: TypeAlias = (
    nn.Module | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
)
Group: TypeAlias = dict[str, Any]
State: TypeAlias = dict[str, Tensor]


class Resolved(NamedTuple):
    """What is worked out once for a parameter, and again when what it rests on changes."""

    param: Tensor
    rests_on: tuple[Any, ...]
    """The options of its group, and the parameter's dtype, device and shape."""
    neurons: Neurons
    hyper: Any
    backend: str
    reduce_over: tuple[Any, ...]
    state_keys: tuple[str, ...]
    """The state that its step needs; it may have more, from options that have changed since."""
    is_viewed: bool
    """Whether its tensors are not stepped as they are, but as views of what this rank holds."""
    needs_whole: bool
    """Whether it is sharded, and its direction takes all of it to find."""
    places: Places | None
    """Where what this rank holds of it lies in the whole, if its step has to know."""


class RelativeOptimizer(Optimizer):
    """Base class of the optimisers of this package.

    It promises, for every subclass: state is made when a parameter is added, so that checkpoints look
    the same before and after the first step and on every rank; ``load_state_dict`` keeps the dtype of
    the state; a parameter that a trainer swapped in gets state at the next step; gradients are never
    written to; a step at ``lr = 0`` changes nothing.

    A subclass declares `state_specs` and implements `_update`.
    """

    state_specs: ClassVar[Mapping[str, StateSpec]]
    """The state of a parameter, in the order of checkpoints."""
    option_names: ClassVar[Iterable[str]] = ()
    """The options that `_options_of` reads."""
    option_hints: ClassVar[Mapping[str, str]] = {}
    """Options of other optimisers, and what serves instead of them."""
    _is_building = False

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
        refuse_unknown(unknown or {}, options, self.option_hints, type(self).__name__)
        defaults = {"role": None, "neuron_dims": None, "num_groups": 1, **defaults}
        self._resolved: dict[int, Resolved] = {}  # by position
        self._options: dict[int, tuple[list[Any], Any]] = {}  # as last read, by group
        self._names: tuple[str, ...] = ()
        self._lr_copies: list[Tensor] = []
        self._grown: list[str] = []
        self._shapes = SeenShapes()
        model = model_of(params)
        if model is not None:
            check_overrides(overrides, defaults)
            if model is not params:
                self._names = tuple(name for name, _ in model.named_parameters())
        marks = _IS_OUTPUT if self._marks_outputs(defaults) else {}
        groups = as_groups(params, overrides, example, marks)
        self._is_building = True
        with advice_to_torchs_errors():
            super().__init__(groups, defaults)
        self._is_building = False
        warn_untrainable(self.param_groups)
        self._prepare_groups(self.param_groups)

    @abstractmethod
    def _update(self, updates: list[Update]) -> None:
        """Update all parameters of one step, in place."""

    def _options_of(self, group: Group) -> Any:
        """Return the options of a group that an update needs, or raise if one is invalid."""
        return group

    def _read_options(self, group: Group) -> Any:
        # Once, and again when an option has changed: trainers set them while they run.
        if torch.compiler.is_compiling():
            return self._options_of(group)
        values = [group[name] for name in self.option_names]
        known = self._options.get(id(group))
        if known is None or known[0] != values:
            known = self._options[id(group)] = values, self._options_of(group)
        return known[1]

    def _hyper(self, options: Any, neurons: Neurons) -> Any:
        """Return the options as these neurons obey them."""
        return options

    def _backend(self, weight: Tensor, group: Group) -> str:
        """Return the name of the backend that steps what this rank holds of a parameter."""
        return "plain"

    def _reduce_over(self, param: Tensor, neurons: Neurons) -> tuple[Any, ...]:
        """Return the mesh dims over which the sums of a sharded parameter's update are added up."""
        return ()

    def _needs_whole(self, param: Tensor, hyper: Any) -> bool:
        """Whether the direction of a sharded parameter takes all of it to find."""
        return False

    def _places(self, param: Tensor, neurons: Neurons, hyper: Any) -> Places | None:
        """Return where this rank's elements of a sharded parameter lie in it, if its step has to know."""
        return None

    def _on_new_param(self, param: Tensor, resolved: Resolved, state: State) -> None:
        """Change, in place, a parameter that the optimiser has not seen before."""

    def _marks_outputs(self, defaults: Mapping[str, Any]) -> bool:
        """Whether output layers get options of their own, so that groups must tell them apart."""
        return False

    def _with_options(self, group: Group, is_output: bool) -> Group:
        """Return a new group with all its options, as they follow from what was chosen and its role."""
        return group

    def _statistics_of(self, group: Group, param: Tensor) -> Any:
        """Return what the running statistics are of: if loading changes it, they start again."""
        return None

    def _check_group(self, group: Group) -> None:
        """Raise if an option of ``group`` is invalid; fill in what it leaves open."""
        lr = group["lr"]
        group["lr"] = read_lr(lr)
        if isinstance(lr, Tensor) and lr is self.defaults["lr"]:
            self._lr_copies.append(group["lr"])
            self._lr_version = lr._version
        self._read_options(group)

    def _check_param(self, param: Tensor, group: Group, name: str) -> None:
        """Raise if ``param`` has no neurons, or does not fit its group's layout."""
        check_param(param, group, name)

    def add_param_group(self, param_group: Group) -> None:
        """Add a param group, and make the state of its parameters.

        If layouts were left on them that differ, the group becomes several.
        """
        check_has_params(param_group)
        start = len(self.param_groups)
        is_group = isinstance(param_group, Mapping)
        try:
            # Everything is checked before anything is projected.
            marks = _IS_OUTPUT if self._marks_outputs(self.defaults) else {}
            for part in with_layouts([param_group], marks) if is_group else [param_group]:
                if is_group:
                    part = self._with_options(*_without_mark(part))
                with advice_to_torchs_errors():
                    super().add_param_group(named_like(self.param_groups, part))
                group = self.param_groups[-1]
                warn_ignored(group, self.option_hints)
                self._check_group(group)
                for param, name in named_params(group):
                    self._check_param(param, group, name)
        except Exception:
            del self.param_groups[start:]
            raise
        if not self._is_building:
            self._prepare_groups(self.param_groups[start:])

    def _prepare_groups(self, groups: Sequence[Group]) -> None:
        """Make the state of new groups: all groups of a new optimiser at once, or one that is added."""
        self._shapes.note(groups)
        for group in groups:
            for place, param in enumerate(group["params"]):
                self._prepare(param, group, place)

    def renew_state(self, groups: Iterable[Group]) -> None:
        """Make the state of parameters anew that were changed before their first step."""
        for group in groups:
            for param in group["params"]:
                state: State = self.state.get(param, {})
                if state and not state["step"].is_meta and not state["step"].any():
                    self.state[param] = self._new_state(param.detach(), self._resolve(param, group))

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
            if not callable(closure):
                raise TypeError(f"closure must be a function without arguments, not {closure!r}")
            with torch.enable_grad():
                loss = closure()
        updates: list[Update] = []
        position = 0
        is_traced = torch.compiler.is_compiling()
        if not is_traced:
            self._shapes.check(self.param_groups, self.state)
        num_known = 0 if is_traced else len(self.state)
        if not is_traced and self._lr_copies:
            self._follow_lr()
        for group in self.param_groups:
            options, lr = self._group_options(group), rate_of_step(group["lr"])
            for place, param in enumerate(group["params"]):
                # A compiler would have to guard what is kept.
                known = None if is_traced else self._resolved.get(position)
                update = self._as_update(param, group, place, options, lr, position, known)
                if update is not None:
                    if not is_traced and update.grad.is_neg():
                        # Its memory lacks the sign, and memory is what kernels read.
                        update = update._replace(grad=update.grad.resolve_neg())
                    updates.append(update)
                position += 1
        if not is_traced and len(self.state) > num_known:
            self._forget_swapped()  # some came, so others may have left
        if not is_traced and self._grown:
            warn_of_new_momentum(self._grown[0])
            self._grown.clear()
        self._update(updates)
        return loss

    def _follow_lr(self) -> None:
        """Copy the tensor given as ``lr`` into the groups if its owner has written to it since.

        Each group has a copy: if they shared one tensor, ``group["lr"] *= 0.1`` in a loop over groups would
        multiply it once per group.
        """
        lr = self.defaults["lr"]
        if lr._version != self._lr_version:
            self._lr_version = lr._version
            for copy in self._lr_copies:
                copy.copy_(lr)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the parameters that are in the groups now.

        Where a trainer has swapped them since, as a rule for shards, the state of those that left goes.
        Those that came get theirs, so that a checkpoint has something to fill; nothing is projected.
        """
        self._shapes.check(self.param_groups, self.state)
        if self._forget_swapped():
            for group in self.param_groups:
                for param in group["params"]:
                    if param.requires_grad and not param.is_meta and not self.state.get(param):
                        known = self._resolve(param, group)
                        self.state[param] = self._new_state(param.detach(), known)
        return super().state_dict()

    def _forget_swapped(self) -> bool:
        """Let go of parameters that left the groups, and of their state; whether there were any."""
        members = {param for group in self.param_groups for param in group["params"]}
        left = [key for key in self.state if isinstance(key, Tensor) and key not in members]
        for key in left:
            del self.state[key]
        return bool(left)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load optimiser state, bit for bit: unlike torch's, state keeps its own dtype.

        Parameters are matched by name where both sides have names, and by position otherwise. The layout
        comes from the model that is being trained, everything else from the checkpoint. Options that an
        older checkpoint does not have keep their present values.
        """
        self._shapes.check(self.param_groups, self.state)
        check_mapping(state_dict)
        states: dict[Tensor, State] = {}

        def before(_: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
            check_state_dict(state_dict)
            named = named_by_order(state_dict["param_groups"], self._names)
            owners = {key: group for group in named for key in group["params"]}
            saved = matched_by_name(named, self.param_groups)
            check_origin(saved, state_dict["state"], type(self))
            check_groups(saved, self.param_groups)
            pairs = [*zip(self.param_groups, saved, strict=True)]
            warn_of_roles(pairs)
            merged = [self._merged(group, saved_group) for group, saved_group in pairs]
            restarted: list[str] = []
            # Made before anything changes, so that a checkpoint that does not fit leaves no trace.
            for group, options in zip(self.param_groups, merged, strict=True):
                self._check_group(options)
                for (param, name), key in zip(named_params(group), options["params"], strict=True):
                    kept = state_dict["state"].get(key)
                    if kept and not param.is_meta:
                        fresh = self._new_state(param.detach(), self._resolve(param, options))
                        states[param] = restored_state(
                            fresh, kept, self.state_specs, name, type(self)
                        )
                        layout = {k: v for k, v in options.items() if k in LAYOUT_KEYS}
                        was = self._statistics_of({**layout, **owners[key]}, param)
                        if was != self._statistics_of(options, param):
                            restart_statistics_(states[param])
                            restarted.append(f"{name} ({was})")
            warn_of_restart(restarted)
            return {**state_dict, "param_groups": merged}

        hooks = [
            self.register_load_state_dict_pre_hook(before),
            self.register_load_state_dict_post_hook(
                lambda _: self.state.update(states), prepend=True
            ),
        ]
        try:
            super().load_state_dict(state_dict)
        finally:
            for hook in hooks:
                hook.remove()

    def _merged(self, group: Group, saved: Group) -> Group:
        """Return a group of a checkpoint as it goes on here."""
        return merged_group(group, saved)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._resolved, self._options, self._names = {}, {}, ()
        self._lr_copies, self._grown = [], []
        self._shapes = SeenShapes()
        super().__setstate__(state)
        self._shapes.note(self.param_groups)
        for group in self.param_groups:
            for key, value in self.defaults.items():
                if key != "differentiable":  # torch adds it to the defaults of every optimiser
                    group.setdefault(key, value)

    def _as_update(
        self,
        param: Tensor,
        group: Group,
        place: int,
        options: tuple[Any, ...],
        lr: float | Tensor,
        position: int,
        known: Resolved | None,
    ) -> Update | None:
        """Return a parameter as this step sees it; ``None`` if it is frozen or has no gradient."""
        grad = param.grad
        state: State | None = self.state.get(param)
        rests_on = options, param.dtype, param.device, param.shape
        if known is None or not state or known.param is not param or known.rests_on != rests_on:
            state = self._prepare(param, group, place)
            if grad is None and param.is_meta:
                warn_no_storage(param_name(group, place))
            if not state:
                return None
            known = self._resolve(param, group)
            if not torch.compiler.is_compiling():
                self._check_param(param, group, param_name(group, place))
                _check_state(state, self.state_specs, known.neurons, param_name(group, place))
                self._resolved[position] = known
        with_others = known.reduce_over or known.needs_whole
        if not param.requires_grad or (grad is None and not with_others):
            return None
        if grad is not None and grad.layout != torch.strided:
            raise_sparse(param_name(group, place))
        if tuple(state) != known.state_keys:
            state = self._needed_state(state, known, param_name(group, place))
        update = Update(
            param, grad, state, known.neurons, known.hyper, lr, position, known.backend  # type: ignore[arg-type]
        )  # fmt: skip
        return _localized(update, known, param_name(group, place)) if known.is_viewed else update

    def _prepare(self, param: Tensor, group: Group, place: int) -> State:
        """Return the state of a parameter, which is made or moved along if it must be.

        A parameter that is frozen or has no storage has none.
        """
        state: State = self.state.get(param, {})  # empty if someone only asked for it
        options = self._read_options(group) if state else None
        dtypes = {key: self.state_specs[key].dtype_for(param.dtype, options) for key in state}
        if state and _fits(state, param, dtypes):
            return state
        if state and not any(tensor.is_meta for tensor in state.values()):
            state = {key: tensor.to(param.device, dtypes[key]) for key, tensor in state.items()}
        elif param.requires_grad and (param.grad is not None or not param.is_meta):
            self._check_param(param, group, param_name(group, place))
            with torch.no_grad():
                known = self._resolve(param, group)
                state = self._new_state(param, known)
                self._on_new_param(param, known, state)
        else:
            return state
        self.state[param] = state
        return state

    def _needed_state(self, state: State, known: Resolved, name: str) -> State:
        """Return the state that a step needs, of all that there is.

        What starts at zero starts now, and what has the parameter's size goes when nothing needs it.
        """
        specs = self.state_specs
        missing = [key for key in known.state_keys if key not in state]
        if not torch.compiler.is_compiling():
            self._grown += [name for key in missing if specs[key].shape == "per element"]
        for key in missing:
            if specs[key].initial is not None:
                raise ValueError(
                    f"{name}: its options have changed to some that need {key}, which is known only to "
                    "an optimizer that is built with them"
                )
        is_kept = {
            key: key in known.state_keys or specs[key].shape != "per element" for key in state
        }
        kept = {key: tensor for key, tensor in state.items() if is_kept[key]}
        made = {**kept, **self._new_state(known.param, known, missing)}
        state.clear()
        state.update((key, made[key]) for key in specs if key in made)
        return {key: state[key] for key in known.state_keys}

    def _group_options(self, group: Group) -> tuple[Any, ...]:
        """Return all options of a group that what is resolved rests on."""
        layout = group["role"], group["neuron_dims"], group["num_groups"]
        return self._read_options(group), layout, group.get("fused")

    def _resolve(self, param: Tensor, group: Group) -> Resolved:
        """Work out what a step has to know of a parameter, beside its values."""
        options, neurons = self._group_options(group), neurons_from_options(group, param.shape)
        hyper = self._hyper(options[0], neurons)
        return Resolved(
            param,
            (options, param.dtype, param.device, param.shape),
            neurons,
            hyper,
            backend=self._backend(to_local(param), group),
            reduce_over=self._reduce_over(param, neurons) if is_sharded(param) else (),
            state_keys=tuple(k for k, s in self.state_specs.items() if s.exists(neurons, hyper)),
            is_viewed=is_sharded(param) or neurons.num_groups > 1,
            needs_whole=is_sharded(param) and self._needs_whole(param, hyper),
            places=self._places(param, neurons, hyper) if is_sharded(param) else None,
        )

    def _new_state(
        self, param: Tensor, known: Resolved, keys: Sequence[str] | None = None
    ) -> State:
        """Make the state of a parameter, as it is declared; all of it, or these keys."""
        neurons = known.neurons
        state: State = {}
        for key in known.state_keys if keys is None else keys:
            spec = self.state_specs[key]
            dtype = spec.dtype_for(param.dtype, known.hyper)
            if spec.initial is not None:
                norms = partial(_norm_per_neuron, param, neurons)
                state[key] = spec.initial(param, known.hyper, norms).to(dtype)
            elif spec.shape == "scalar":
                state[key] = torch.zeros((), dtype=dtype, device=param.device)
            elif spec.shape == "per element" or neurons.is_elementwise:
                state[key] = torch.zeros_like(param, dtype=dtype, requires_grad=False)
            elif is_sharded(param):
                from nero.distributed import per_neuron

                state[key] = per_neuron(param, neurons, dtype=dtype, device=param.device)  # type: ignore[arg-type]
            else:
                state[key] = torch.zeros(neurons.state_shape, dtype=dtype, device=param.device)
        return state


_IS_OUTPUT = MappingProxyType({"is_output": True})
"""What tells the groups of output layers apart until their options are resolved."""


def _without_mark(group: Group) -> tuple[Group, bool]:
    marks = _IS_OUTPUT.keys()
    return {k: v for k, v in group.items() if k not in marks}, marks <= group.keys()


def as_groups(
    params: Any,
    overrides: Overrides = (),
    example: Any = None,
    of_outputs: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Return the param groups of a model, of an iterator that leads to one, or of bare parameters."""
    model = model_of(params)
    if model is not None:
        return grouped(resolve(model, overrides, example, of_outputs))
    if overrides or example is not None:
        name = "overrides match parameter names" if overrides else "example is a model's input"
        raise TypeError(f"{name}: pass the model, not its parameters")
    if isinstance(params, Tensor):
        return params  # torch refuses it, and says why
    check_params(params)
    return with_layouts(params, of_outputs)


def _check_state(state: State, specs: Mapping[str, StateSpec], neurons: Neurons, name: str) -> None:
    """Raise if the layout has changed since the state was made."""
    for key, tensor in state.items():
        if specs[key].shape == "per neuron" and tuple(tensor.shape) != neurons.state_shape:
            raise LayoutError(
                f"{name}: its layout has changed, and its {key} is that of other neurons; build the "
                "optimizer anew"
            )


def _localized(update: Update, known: Resolved, name: str) -> Update:
    """Return what this rank holds of a parameter, viewed so that its fan-in dims apply."""
    param, grad, view = update.weight, update.grad, known.neurons.view
    has_grad = grad is not None
    if is_sharded(param):
        from nero.distributed import local_pair

        weight = to_local(param)
        grad = local_pair(param, grad, name)[1] if has_grad else torch.zeros_like(weight)
    else:
        weight = param
    state = {key: to_local(tensor) for key, tensor in update.state.items()}
    if known.neurons.num_groups > 1:
        state = {key: view(tensor) if tensor.ndim else tensor for key, tensor in state.items()}
    return update._replace(
        weight=view(weight),
        grad=view(grad),
        state=state,
        reduce_over=known.reduce_over,
        has_grad=has_grad,
        places=known.places,
        whole=param if known.needs_whole else None,
    )


def _norm_per_neuron(param: Tensor, neurons: Neurons) -> Tensor:
    if is_sharded(param):
        from nero.distributed import sharded_neuron_norm

        return sharded_neuron_norm(param, neurons)  # type: ignore[arg-type]
    known = finite_part(neurons.view(param))
    norm = neuron_norm(known, fan_in_dims=neurons.fan_in_dims)
    return norm.view(neurons.state_shape)


def _fits(state: State, param: Tensor, dtypes: Mapping[str, torch.dtype]) -> bool:
    # A state's tensors are made, and moved, together.
    if [*state.values()][-1].device != param.device:
        return False
    return all(tensor.dtype == dtypes[key] for key, tensor in state.items())
