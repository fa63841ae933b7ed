"""Counts the operations that torch dispatches, and the memory of their results."""

import weakref
from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WAITS = frozenset(
    {"_local_scalar_dense", "item", "is_nonzero", "nonzero", "equal", "masked_select"}
)
"""Operations for which the host waits for a GPU."""


class Operations(TorchDispatchMode):
    """Counts what is dispatched, and the largest number of bytes that live results hold at once."""

    def __init__(self):
        super().__init__()
        self.counts, self.num_bytes, self.peak = Counter(), 0, 0
        self._seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.counts[function.overloadpacket.__name__] += 1
        old = {leaf.untyped_storage()._cdata for leaf in tree_leaves(args) if _is_tensor(leaf)}
        out = function(*args, **(kwargs or {}))
        for leaf in filter(_is_tensor, tree_leaves(out)):
            storage = leaf.untyped_storage()
            if storage._cdata not in old | self._seen:
                self._seen.add(storage._cdata)
                self.num_bytes += storage.nbytes()
                weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self.num_bytes)
        return out

    def _free(self, key, num_bytes):
        self._seen.discard(key)
        self.num_bytes -= num_bytes


def _is_tensor(value):
    return isinstance(value, torch.Tensor)
