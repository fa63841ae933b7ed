"""Refuse flattened parameters: FSDP1 and DeepSpeed ZeRO cut neurons into pieces.

FSDP1 marks its parameters, and ZeRO-3 marks those of a model that it has sharded already. But ZeRO usually
gets an optimizer of whole parameters and swaps one unmarked vector into each of its param groups. Only a
record of what was there before can tell such a vector from a bias.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import torch
from torch import Tensor

Group: TypeAlias = Mapping[str, Any]

_ADVICE = (
    "which cuts neurons into pieces; use FSDP2 (torch.distributed.fsdp.fully_shard), which keeps them "
    "whole, or DDP"
)


def check_whole(param: Tensor, name: str) -> None:
    """Raise if ``param`` bears the mark of a trainer that has flattened it."""
    if getattr(param, "_fsdp_flattened", False) or hasattr(param, "ds_id"):
        raise RuntimeError(f"{name} was flattened by FSDP1 or DeepSpeed ZeRO, {_ADVICE}")


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
            if group["params"]:
                shapes = tuple(param.shape for param in group["params"])
                self._seen[id(group)] = _Seen(id(group["params"][0]), shapes)

    def check(self, groups: Sequence[Group], known: Container[Tensor]) -> None:
        """Raise if one of the groups now holds flattened parameters, else take them as they are.

        A new vector counts as flattened where a tensor of more dims was, where it replaces several
        parameters, and where other groups are empty, as ZeRO-3 leaves them between steps. Swaps that keep
        the number of dims are fine: FSDP2 swaps in DTensors, ``to_empty`` new parameters, and DeepSpeed
        without ZeRO float32 copies.

        Args:
            groups: the optimizer's, or those that are about to step.
            known: parameters that are not new.
        """
        for group in groups:
            params, seen = group["params"], self._seen.get(id(group))
            if not params:
                continue
            if seen and seen.first == id(params[0]) and len(seen.shapes) == len(params):
                continue  # at nearly every step
            for place, param in enumerate(params):
                is_new_vector = param.ndim == 1 and param.requires_grad and param not in known
                if seen and is_new_vector:
                    is_flat = _is_flat(place, len(params), seen.shapes)
                    if is_flat or any(not g["params"] and id(g) in self._seen for g in groups):
                        _refuse(param, group, seen.shapes)
            self.note([group])


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
