"""Outcomes that depend on values, where a pass on fake tensors has none: one is invented."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

if TYPE_CHECKING:
    from nero.layout.observation.observer import Observer

_NUMBERS = ("_local_scalar_dense", "item", "is_nonzero", "equal")
_UNIQUE = ("_unique2", "unique_consecutive", "unique_dim")


def invent(observer: "Observer", func: Any, name: str, args: tuple[Any, ...]) -> Any:
    """Return an outcome for an operation that cannot run without values, or ``None`` if it can run."""
    tensor = args[0] if args else None
    if not isinstance(tensor, FakeTensor) or getattr(tensor, "constant", None) is not None:
        return None
    if name in _NUMBERS:
        out: Any = False if name == "equal" else _number(tensor)
    elif name == "nonzero":
        out = tensor.new_empty((max(1, min(4, tensor.numel())), tensor.ndim), dtype=torch.long)
    elif name in _UNIQUE:
        ids = [tensor.new_empty(n, dtype=torch.long) for n in (tensor.numel(), 2)]
        out = (tensor.new_empty(2), *ids)
    elif name == "index" and any(_is_mask(index) for index in args[1]):
        out = func(tensor, [each for index in args[1] for each in _unmasked(index)])
    else:
        return None
    observer.invented[name] += 1
    return out


def _number(tensor: Tensor) -> bool | int | float:
    if tensor.dtype == torch.bool:
        return True
    return 1.0 if tensor.dtype.is_floating_point else 1


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _unmasked(index: Tensor | None) -> list[Tensor | None]:
    """Return positions that a mask might select: as many as it has entries."""
    if index is None or not _is_mask(index):
        return [index]
    return [index.new_empty(max(1, index.numel()), dtype=torch.long) for _ in range(index.ndim)]
