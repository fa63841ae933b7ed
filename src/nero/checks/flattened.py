"""Refuse flattened parameters: FSDP1 and DeepSpeed ZeRO cut neurons into pieces.

FSDP1 marks its parameters, and ZeRO-3 marks those of a model that it has sharded already. But ZeRO usually
gets an optimizer of whole parameters and swaps one unmarked vector into each of its param groups. Only a
record of what was there before can tell such a vector from a bias.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import torch
from torch import Tensor

from nero.core.held import held_range, is_range

Group: TypeAlias = Mapping[str, Any]

_ADVICE = (
    "which cuts neurons into pieces; use FSDP2 (torch.distributed.fsdp.fully_shard), which keeps them "
    "whole, or DDP"
)

_OR = "or use FSDP2 (torch.distributed.fsdp.fully_shard)"


def check_whole(param: Tensor, name: str) -> None:
    """Raise if ``param`` bears the mark of a trainer that has flattened it, and we don't know how."""
    if held_range(param) is not None:
        return
    if getattr(param, "_fsdp_flattened", False):
        raise RuntimeError(
            f"{name} was flattened by FSDP1, so its shape says nothing about neurons; pass the wrapped "
            f"model itself, Nero(model), after FullyShardedDataParallel(...) has wrapped it, {_OR}"
        )
    if hasattr(param, "ds_id") and param.numel() != getattr(param, "ds_numel", None):
        raise RuntimeError(
            f"{name} was partitioned by DeepSpeed ZeRO-3; pass the model itself, Nero(model), to "
            f"deepspeed.initialize, {_OR}"
        )


class _Seen(NamedTuple):
    first: int
    """The id of the group's first parameter: engines replace all of them or none."""
    shapes: tuple[torch.Size, ...]


class SeenShapes:
    """The shapes that the parameters of each group had when the optimizer last looked."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}  # by the id of the group, which engines keep

    def note(self, groups: Iterable[Group]) -> None:
        """Take the groups as they are."""
        for group in groups:
            if group["params"] and not is_range(group["params"][0]):
                shapes = tuple(param.shape for param in group["params"])
                self._seen[id(group)] = _Seen(id(group["params"][0]), shapes)

    def check(self, groups: Sequence[Group], known: Mapping[Tensor, Any]) -> None:
        """Raise if one of the groups now holds flattened parameters, else take them as they are.

        A new vector counts as flattened where a tensor of more dims was, where it replaces several
        parameters, and where other groups are empty, as ZeRO-3 leaves them between steps. Swaps that keep
        the number of dims are fine: FSDP2 swaps in DTensors, ``to_empty`` new parameters, and DeepSpeed
        without ZeRO float32 copies.

        Args:
            groups: the optimizer's, or those that are about to step.
            known: optimizer state; an engine may have made an empty one for a parameter that is new.
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
        """Whether we know what a new vector in a group holds."""
        return False


def _is_flat(place: int, num_params: int, shapes: Sequence[torch.Size]) -> bool:
    """Whether a vector at this place of a group stands for parameters of these shapes."""
    had_more_dims = place < len(shapes) and len(shapes[place]) > 1
    return had_more_dims or num_params == 1 < len(shapes)


def _refuse(vector: Tensor, group: Group, shapes: Sequence[torch.Size]) -> NoReturn:
    names = group.get("param_names")
    lost = f"`{names[0]}`" if names else f"a parameter of shape {tuple(shapes[0])}"
    others = f" and {len(shapes) - 1} more" if len(shapes) > 1 else ""
    raise RuntimeError(
        f"DeepSpeed ZeRO or FSDP1 has put a flat vector of {vector.numel()} numbers in the place of "
        f"{lost}{others}, {_ADVICE}"
    )
