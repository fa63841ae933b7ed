"""Refuse flattened parameters: FSDP1 and DeepSpeed ZeRO split neurons.

FSDP1 marks its parameters, and ZeRO-3 marks those of a model that it has already sharded. But ZeRO is
usually given an optimizer built on whole parameters, and replaces those of each param group with one
unmarked flat tensor. Only a record of the earlier parameters distinguishes that tensor from a bias.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import torch
from torch import Tensor

from nero.checks.names import param_name
from nero.core.held import held_range, is_range
from nero.core.warn import and_more

Group: TypeAlias = Mapping[str, Any]

_ADVICE = (
    "which splits neurons; use FSDP2 (torch.distributed.fsdp.fully_shard), which does not, or DDP"
)

_OR = "or use FSDP2 (torch.distributed.fsdp.fully_shard)"


def check_whole(param: Tensor, name: str) -> None:
    """Raise if a trainer has flattened ``param`` in a way that we cannot trace."""
    if held_range(param) is not None:
        return
    if getattr(param, "_fsdp_flattened", False):
        raise RuntimeError(
            f"{name} was flattened by FSDP1, so its neurons cannot be found from its shape; build "
            f"Nero(model) from the model that FullyShardedDataParallel(...) returned, {_OR}"
        )
    if hasattr(param, "ds_id") and param.numel() != getattr(param, "ds_numel", None):
        raise RuntimeError(
            f"{name} was partitioned by DeepSpeed ZeRO-3; pass the model itself, Nero(model), to "
            f"deepspeed.initialize, {_OR}"
        )


def check_engine_steps(groups: Iterable[Group]) -> None:
    """Raise if a step without gradients finds parameters whose gradients DeepSpeed ZeRO keeps to itself."""
    for group in groups:
        for place, param in enumerate(group["params"]):
            held: Any = held_range(param) if is_range(param) else None
            is_of_zero = held is not None and not held.plan.may_lack_gradients
            if is_of_zero or hasattr(param, "_hp_mapping") or hasattr(param, "_z3_optimizer"):
                name = held.pieces[0].name if is_of_zero else param_name(group, place)
                raise RuntimeError(
                    f"{name} has no gradient here, since DeepSpeed ZeRO keeps it; pass this optimizer to "
                    "deepspeed.initialize, and call engine.step() rather than optimizer.step()"
                )


class _Seen(NamedTuple):
    first: int
    """The id of the group's first parameter: engines replace all of them or none."""
    shapes: tuple[torch.Size, ...]


class SeenShapes:
    """Each group's parameter shapes at the last check."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}  # by the id of the group, which engines keep

    def note(self, groups: Iterable[Group]) -> None:
        """Record the groups' parameter shapes."""
        for group in groups:
            if group["params"] and not is_range(group["params"][0]):
                shapes = tuple(param.shape for param in group["params"])
                self._seen[id(group)] = _Seen(id(group["params"][0]), shapes)

    def check(self, groups: Sequence[Group], known: Mapping[Tensor, Any]) -> None:
        """Raise if a group now holds flattened parameters; otherwise record its shapes.

        A new 1-D tensor counts as flattened if it replaces a tensor with more dims, if it replaces
        several parameters, or if other groups are empty, as ZeRO-3 leaves them between steps. Swaps that
        keep the number of dims are fine: FSDP2 swaps in DTensors, ``to_empty`` new parameters, and
        DeepSpeed without ZeRO float32 copies.

        Args:
            groups: the optimizer's param groups, or those about to step.
            known: optimizer state; engines may have created an empty one for a new parameter.
        """
        for group in groups:
            params, seen = group["params"], self._seen.get(id(group))
            if not params:
                continue
            if seen and seen.first == id(params[0]) and len(seen.shapes) == len(params):
                continue  # at nearly every step
            for place, param in enumerate(params):
                is_new_vector = param.ndim == 1 and param.requires_grad and not known.get(param)
                if seen and is_new_vector and not is_range(param):
                    is_flat = _is_flat(place, len(params), seen.shapes)
                    is_alone = any(not g["params"] and id(g) in self._seen for g in groups)
                    if not self.is_traced(param, group) and (is_flat or is_alone):
                        _refuse(param, group, seen.shapes)
            self.note([group])

    def is_traced(self, vector: Tensor, group: Group) -> bool:
        """Whether we know which parameters a new flat tensor in a group contains."""
        return False


def _is_flat(place: int, num_params: int, shapes: Sequence[torch.Size]) -> bool:
    """Whether a 1-D tensor at this position of a group replaced parameters of these shapes."""
    had_more_dims = place < len(shapes) and len(shapes[place]) > 1
    return had_more_dims or num_params == 1 < len(shapes)


def _refuse(vector: Tensor, group: Group, shapes: Sequence[torch.Size]) -> NoReturn:
    names = group.get("param_names")
    first = f"`{names[0]}`" if names else f"a parameter of shape {tuple(shapes[0])}"
    lost = and_more([first, *shapes[1:]], 1)
    raise RuntimeError(
        f"DeepSpeed ZeRO or FSDP1 has replaced {lost} by a flat tensor of {vector.numel()} "
        f"elements, {_ADVICE}"
    )
