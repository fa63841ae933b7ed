"""Concrete values of some fake tensors: the example's integers, and everything computed from them.

Integers such as the number of patches in an image decide the shapes in a forward pass. They are few and
small, so an operation whose arguments all have concrete values is also computed on those.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakIdKeyDictionary, WeakIdRef

MAX_NUMEL = 1 << 14
_CONSTANTS = ("arange", "zeros", "ones", "full", "eye", "linspace", "scalar_tensor")
_GROWING = (*_CONSTANTS, "repeat", "expand", "constant_pad_nd", "one_hot", "new_zeros", "new_full")


def fake_like(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a plain stand-in, even for a sharded tensor; call it inside fake mode."""
    if tensor.layout != torch.strided:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


class ConcreteValues:
    """The concrete values of some fake tensors."""

    def __init__(self) -> None:
        self._values: Any = WeakIdKeyDictionary(ref_type=WeakIdRef)
        self._overwritten: dict[int, Any] = {}  # storages, kept alive so that no address is reused

    def get(self, tensor: object) -> Tensor | None:
        """Return a tensor's value, or ``None``."""
        if not isinstance(tensor, Tensor):
            return None
        value = self._values.get(tensor) if isinstance(tensor, FakeTensor) else self._copied(tensor)
        is_stale = value is not None and _storage(value) in self._overwritten
        return None if is_stale else value

    def _copied(self, tensor: Tensor) -> Tensor | None:
        """Return a copy of a real tensor, so that the user's tensor is never written to."""
        if tensor.is_meta or tensor.numel() > MAX_NUMEL or isinstance(tensor, torch.nn.Parameter):
            return None
        if tensor not in self._values:
            with unset_fake_temporarily():
                self._values[tensor] = tensor.detach().cpu().clone()
        copy: Tensor = self._values[tensor]
        return copy

    def put(self, tree: Any, values: Any) -> None:
        """Store the values of the tensors in ``tree``."""
        for tensor, value in zip(tree_leaves(tree), tree_leaves(values), strict=True):
            if isinstance(tensor, FakeTensor) and isinstance(value, Tensor):
                self._values[tensor] = value

    def put_integers(self, tree: Any, values: Any) -> None:
        """Store the values of small integer tensors."""
        for tensor, value in zip(tree_leaves(tree), tree_leaves(values), strict=True):
            if not isinstance(value, Tensor) or value.is_meta or value.is_floating_point():
                continue
            if value.numel() <= MAX_NUMEL:
                with unset_fake_temporarily():
                    value = value.detach().cpu().clone()
                self.put(tensor, value)

    def num_nonzero(self, tensor: Tensor) -> int | None:
        """Return the number of nonzero elements, or ``None`` if the values are unknown."""
        value = self.get(tensor)
        if value is None:
            return None
        with unset_fake_temporarily():
            return int(value.count_nonzero())

    def compute(self, func: Any, name: str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Return an operation's result, or ``None`` if an argument has no concrete value."""
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        values = [self.get(tensor) for tensor in tensors]
        if any(value is None for value in values):
            if func._schema.is_mutable:
                self._forget(value for value in values if value is not None)
            return None
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        if is_random or "empty" in name or not (tensors or name in _CONSTANTS):
            return None
        with unset_fake_temporarily():
            args, kwargs = tree_map(self._real, (args, dict(kwargs)))
            if name not in _GROWING or _is_small((args, kwargs)):
                return func(*args, **kwargs)
        return None

    def _real(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return self.get(leaf)
        return torch.device("cpu") if isinstance(leaf, torch.device) else leaf

    def _forget(self, values: Any) -> None:
        for value in values:
            self._overwritten[_storage(value)] = value.untyped_storage()


def _is_small(arguments: Any) -> bool:
    """Whether no number among the arguments asks for a large tensor."""
    numbers = [n for n in tree_leaves(arguments) if isinstance(n, int | float)]
    return all(abs(n) <= MAX_NUMEL for n in numbers)


def _storage(value: Tensor) -> int:
    return value.untyped_storage().data_ptr()
