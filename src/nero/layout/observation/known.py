"""Values that are known though tensors are fake: integers of the example, and what follows from them.

How many patches an image has, or which tokens stand for one, decides the shapes that a forward pass meets.
Such numbers are few and small, so they are carried along: an operation all of whose inputs are known is
computed for real as well.
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


class KnownValues:
    """The values of some fake tensors."""

    def __init__(self) -> None:
        self._values: Any = WeakIdKeyDictionary(ref_type=WeakIdRef)
        self._overwritten: dict[int, Any] = {}  # storages, kept so that no other takes their place

    def get(self, tensor: object) -> Tensor | None:
        """Return the value of a tensor, if it is known."""
        if not isinstance(tensor, Tensor):
            return None
        value = self._values.get(tensor) if isinstance(tensor, FakeTensor) else self._copied(tensor)
        is_stale = value is not None and _storage(value) in self._overwritten
        return None if is_stale else value

    def _copied(self, tensor: Tensor) -> Tensor | None:
        """Return a copy of a tensor that is not fake, so that nothing of the user's is written to."""
        if tensor.is_meta or tensor.numel() > MAX_NUMEL or isinstance(tensor, torch.nn.Parameter):
            return None
        if tensor not in self._values:
            with unset_fake_temporarily():
                self._values[tensor] = tensor.detach().cpu().clone()
        copy: Tensor = self._values[tensor]
        return copy

    def put(self, tree: Any, values: Any) -> None:
        """Note the values of the tensors in ``tree``."""
        for tensor, value in zip(tree_leaves(tree), tree_leaves(values), strict=True):
            if isinstance(tensor, FakeTensor) and isinstance(value, Tensor):
                self._values[tensor] = value

    def put_integers(self, tree: Any, values: Any) -> None:
        """Note the values of small tensors of integers."""
        for tensor, value in zip(tree_leaves(tree), tree_leaves(values), strict=True):
            if not isinstance(value, Tensor) or value.is_meta or value.is_floating_point():
                continue
            if value.numel() <= MAX_NUMEL:
                with unset_fake_temporarily():
                    value = value.detach().cpu().clone()
                self.put(tensor, value)

    def num_nonzero(self, tensor: Tensor) -> int | None:
        """Return how many entries of a tensor are not zero, if that is known."""
        value = self.get(tensor)
        if value is None:
            return None
        with unset_fake_temporarily():
            return int(value.count_nonzero())

    def outcome(self, func: Any, name: str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Return what an operation comes to, or ``None`` if that is not known."""
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
    """Whether no number among the arguments asks for something large."""
    numbers = [n for n in tree_leaves(arguments) if isinstance(n, int | float)]
    return all(abs(n) <= MAX_NUMEL for n in numbers)


def _storage(value: Tensor) -> int:
    return value.untyped_storage().data_ptr()
