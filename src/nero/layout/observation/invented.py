"""Outcomes that depend on values, where a pass on fake tensors has none: one is invented."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

if TYPE_CHECKING:
    from nero.layout.observation.observer import Observer

_NUMBERS = ("_local_scalar_dense", "item", "is_nonzero", "equal")
_UNIQUE = ("_unique2", "unique_consecutive", "unique_dim")
_SHAPES = (*_UNIQUE, "nonzero", "masked_select", "repeat_interleave", "bincount")


def invent(
    observer: "Observer",
    func: Any,
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    known: Any,
) -> Any:
    """Return an outcome for an operation that cannot run without values, or ``None`` if it can run.

    Args:
        observer: where it is noted.
        func: the operation.
        name: its name.
        args: its arguments.
        kwargs: those that are named.
        known: its outcome, if that is known.
    """
    tensor = args[0] if args else None
    if not isinstance(tensor, FakeTensor):
        return None
    if name == "_grouped_mm":  # torch knows its shape for few dtypes and strides
        return _grouped_product(*args, **kwargs)
    if known is not None:
        return _known(name, args, known)
    if getattr(tensor, "constant", None) is not None:
        return None
    if name in _NUMBERS:
        out: Any = False if name == "equal" else _number(tensor)
    elif name == "nonzero":
        out = tensor.new_empty((max(1, min(4, tensor.numel())), tensor.ndim), dtype=torch.long)
    elif name in _UNIQUE:
        ids = [tensor.new_empty(n, dtype=torch.long) for n in (tensor.numel(), 2)]
        out = (tensor.new_empty(2), *ids)
    elif name == "masked_select":
        out = tensor.new_empty(max(1, tensor.numel()))
    elif name == "repeat_interleave" and func._overloadname == "Tensor":
        out = tensor.new_empty(tensor.numel(), dtype=torch.long)
    elif name == "bincount":
        out = tensor.new_empty(max(1, args[2] if len(args) > 2 else 1), dtype=torch.long)
    elif name == "index" and any(_is_mask(index) for index in args[1]):
        places = [each for index in args[1] for each in _unmasked(observer, index)]
        out = func(tensor, places)
    else:
        return None
    observer.invented[name] += 1
    return out


def _grouped_product(left: Tensor, right: Tensor, offs: Any = None, **kwargs: Any) -> Tensor:
    """Return what the products of groups of rows with a matrix each would look like."""
    shape = [left.shape[-2], right.shape[-1]]
    if left.ndim == right.ndim:
        shape.insert(0, left.shape[0] if left.ndim == 3 else offs.numel())
    return left.new_empty(shape)


def _known(name: str, args: tuple[Any, ...], known: Any) -> Any:
    """Return a known outcome where a fake tensor has none."""
    if name in _NUMBERS:
        return known
    is_masked = name == "index" and any(_is_mask(index) for index in args[1])
    if name in _SHAPES or is_masked:
        return tree_map_only(Tensor, lambda t: args[0].new_empty(t.shape, dtype=t.dtype), known)
    return None


def _number(tensor: Tensor) -> bool | int | float:
    if tensor.dtype == torch.bool:
        return True
    return 1.0 if tensor.dtype.is_floating_point else 1


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _unmasked(observer: "Observer", index: Tensor | None) -> list[Tensor | None]:
    """Return positions that a mask selects: if it is not known, as many as it has entries."""
    if index is None or not _is_mask(index):
        return [index]
    count = observer.known.num_nonzero(index)
    size = max(1, index.numel()) if count is None else count
    return [index.new_empty(size, dtype=torch.long) for _ in range(index.ndim)]
