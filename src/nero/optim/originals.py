"""Engines that flatten parameters: a flat vector is traced back to the parameters that it was made of."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from nero.checks.flattened import Group, SeenShapes
from nero.checks.names import named_params
from nero.core.held import Held, held_range, hold_range, is_range
from nero.core.neurons import neurons_from_options
from nero.layout import Overrides
from nero.layout.arrival import model_of
from nero.layout.given import Params, as_groups

State = Mapping[str, Tensor]


class Originals(SeenShapes):
    """Each group's whole parameters, from when the optimizer was built or last saw them unflattened."""

    def __init__(self) -> None:
        super().__init__()
        # Not weak references: torch.utils.swap_tensors refuses tensors that have them.
        self._members: dict[int, list[tuple[str, Tensor, torch.Size]]] = {}
        self._kept: dict[int, State] = {}
        self._unchecked: set[Tensor] = set()
        self._is_loading = False

    def note(self, groups: Iterable[Group]) -> None:
        """Take the groups as they are."""
        groups = [*groups]
        super().note(groups)
        for group in groups:
            if group["params"] and not is_range(group["params"][0]):
                self._members[id(group)] = [
                    (name, param, param.shape) for param, name in named_params(group)
                ]

    def forget_others(self, groups: Iterable[Group]) -> None:
        """Forget all groups but these, so that the parameters of removed groups can be freed."""
        if self._kept:  # engines that flatten parameters leave out groups for a while
            return
        kept = {id(group) for group in groups}
        self._members = {key: members for key, members in self._members.items() if key in kept}

    def check(self, groups: Sequence[Group], known: Any, *, is_loading: bool = False) -> None:
        """Trace flat vectors that are new in the groups, or raise.

        While a checkpoint is loaded, parameters and vectors may have different values; these are then
        compared at the next call.

        Args:
            groups: the optimizer's, or those that are about to step.
            known: the optimizer's state.
            is_loading: whether a checkpoint is being loaded.
        """
        self._states: Mapping[Tensor, State] = known
        self._is_loading = is_loading
        super().check(groups, known)
        if self._unchecked and not is_loading:
            for group in groups:
                for vector in self._unchecked & {*group["params"]}:
                    self._trace(vector, group)
                    self._unchecked.remove(vector)

    def is_traced(self, vector: Tensor, group: Group) -> bool:
        """Trace a flat tensor back to its group's parameters; return whether an engine recognizes it."""
        if hasattr(vector, "placements") or not _is_distributed():
            return False
        if not self._kept:  # before the optimizer forgets parameters that left its groups
            self._kept = {id(param): _worth_keeping(state) for param, state in self._states.items()}
        held = self._trace(vector, group)
        if held is not None:
            hold_range(held)
            if self._is_loading:
                self._unchecked.add(vector)
        return held is not None

    def _trace(self, vector: Tensor, group: Group) -> Held | None:
        from nero.distributed.flat import Original, trace

        position, originals = 0, []
        for key, members in self._members.items():
            for name, param, shape in members:
                if key == id(group):
                    neurons = neurons_from_options(group, shape)
                    state = self._kept.get(id(param), {})
                    original = Original(name, param, tuple(shape), neurons, position, state)
                    originals.append(original)
                position += 1
        return trace(vector, originals, has_values=not self._is_loading)


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _worth_keeping(state: State) -> State:
    """Drop state that is still zero, so that it doesn't occupy the memory that engines free."""
    if state and state["step"].any():
        return state
    return {key: state[key] for key in ("scale", "radius") if key in state}


def groups_of(
    params: Params, overrides: Overrides, example: Any, of_outputs: Mapping[str, Any]
) -> Any:
    """Return param groups for anything an optimizer accepts, including a model wrapped by FSDP1."""
    model = model_of(params)
    if model is None or not any(getattr(p, "_fsdp_flattened", False) for p in model.parameters()):
        return as_groups(params, overrides, example, of_outputs)
    from nero.distributed.flat import fsdp1

    return fsdp1.groups_of(model, lambda whole: as_groups(whole, overrides, example, of_outputs))


@contextmanager
def whole_params(model: nn.Module | None) -> Iterator[None]:
    """Gather the parameters of a model partitioned by ``deepspeed.zero.Init``; rank 0's changes stay."""
    params: list[Any] = [] if model is None else [*model.parameters()]
    partitioned = [p for p in params if hasattr(p, "ds_id") and p.numel() != p.ds_numel]
    if not partitioned:
        yield
        return
    zero = import_module("deepspeed").zero  # which is untyped
    with zero.GatheredParameters(partitioned, modifier_rank=0):
        yield


def as_saved(packed: dict[str, Any], groups: Sequence[Group]) -> dict[str, Any]:
    """Return a state_dict with the state of flat ranges in checkpoint format."""
    params = [param for group in groups for param in group["params"]]
    for index, param in enumerate(params):
        held: Any = held_range(param)
        if is_range(param) and held.is_spread and index in packed["state"]:
            from nero.distributed.flat.saved import spread

            packed["state"][index] = spread(held, packed["state"][index])
    return packed


def as_loaded(param: Tensor, saved: Any, fresh: Mapping[str, Tensor], name: str) -> Any:
    """Convert a parameter's saved state to the format used on this rank."""
    if not is_range(param) or not isinstance(saved, Mapping):
        return saved
    held: Any = held_range(param)
    if held.is_spread:
        from nero.distributed.flat.saved import collapsed

        saved = collapsed(held, saved, fresh)
    how = "or save it with FSDP.optim_state_dict" if held.is_spread else "and the same ZeRO stage"
    for key, tensor in fresh.items():
        if key in saved and getattr(saved[key], "shape", None) != tensor.shape:
            raise ValueError(
                f"{name}: the checkpoint's {key} belongs to a different range from this rank's; load "
                f"it with the number of ranks and the model that it was saved with, {how}"
            )
    return saved


def skipped_in_ranges(states: Mapping[Tensor, State]) -> int:
    """Return how many neuron updates were skipped in flat ranges, on all ranks; all of them call this."""
    counts: dict[int, tuple[Any, Tensor]] = {}
    for param, state in states.items():
        if is_range(param) and "num_skipped" in state:
            held: Any = held_range(param)
            group, count = held.plan.group, state["num_skipped"].sum()
            _, before = counts.get(id(group), (group, 0))
            counts[id(group)] = group, before + count
    if not counts:
        return 0
    from nero.distributed.collectives import all_reduce_over

    return sum(int(all_reduce_over(count, group)) for group, count in counts.values())


def left_of(states: Iterable[Any], members: set[Tensor]) -> list[Tensor]:
    """Return the keys of optimizer state that are parameters no longer in the groups.

    Engines keep ranges outside the groups between steps.
    """
    return [
        key
        for key in states
        if isinstance(key, Tensor) and key not in members and not is_range(key)
    ]
