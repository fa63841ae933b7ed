"""Invent results that depend on values, which fake tensors do not have."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from nero.layout.observation.values import ConcreteValues

_NUMBERS = ("_local_scalar_dense", "item", "is_nonzero", "equal")
_UNIQUE = ("_unique2", "unique_consecutive", "unique_dim")
_SHAPES = (*_UNIQUE, "nonzero", "masked_select", "repeat_interleave", "bincount")


def invent(
    func: Any,
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    value: Any,
    values: ConcreteValues,
    counts: Counter[str],
) -> Any:
    """Return a result for an operation that needs values, or ``None`` if it can run on fake tensors.

    Uses the concrete result ``value`` if there is one. Otherwise counts the operation in ``counts``.
    """
    tensor = args[0] if args else None
    if not isinstance(tensor, FakeTensor):
        return None
    if name == "_grouped_mm":  # torch infers its shape for few dtypes and strides
        return _grouped_product(*args, **kwargs)
    if value is not None:
        return _fake_of(name, args, value)
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
        out = func(tensor, [part for index in args[1] for part in _unmasked(values, index)])
    else:
        return None
    counts[name] += 1
    return out


def _grouped_product(left: Tensor, right: Tensor, offs: Any = None, **kwargs: Any) -> Tensor:
    """Return a tensor with the shape of a product of row groups with one matrix each."""
    shape = [left.shape[-2], right.shape[-1]]
    if left.ndim == right.ndim:
        shape.insert(0, left.shape[0] if left.ndim == 3 else offs.numel())
    return left.new_empty(shape)


def _fake_of(name: str, args: tuple[Any, ...], value: Any) -> Any:
    """Return a concrete result as fake tensors, if the operation cannot run on them."""
    if name in _NUMBERS:
        return value
    is_masked = name == "index" and any(_is_mask(index) for index in args[1])
    if name in _SHAPES or is_masked:
        return tree_map_only(Tensor, lambda t: args[0].new_empty(t.shape, dtype=t.dtype), value)
    return None


def _number(tensor: Tensor) -> bool | int | float:
    if tensor.dtype == torch.bool:
        return True
    return 1.0 if tensor.dtype.is_floating_point else 1


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _unmasked(values: ConcreteValues, index: Tensor | None) -> list[Tensor | None]:
    """Return the positions a mask selects: as many as it has entries if its values are unknown."""
    if index is None or not _is_mask(index):
        return [index]
    count = values.num_nonzero(index)
    size = max(1, index.numel()) if count is None else count
    return [index.new_empty(size, dtype=torch.long) for _ in range(index.ndim)]
