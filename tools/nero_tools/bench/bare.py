# mypy: ignore-errors
# (numba compiles this file by its own rules, which type checkers do not know.)
"""The physical limit: a loop that reads w and g and writes w, and does nothing else.

Three memory streams are the least that any optimizer moves which touches every weight. It is driven as our
own CPU kernel is: a serial kernel without the GIL, on one slice of the elements per thread.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import torch
from torch.optim import Optimizer

from nero.backends.cpu.memory import pointer
from nero_tools.bench.competitors import SGD_LR

DECAY = np.float32(0.999)
RATE = np.float32(-SGD_LR)


@numba.njit(nogil=True, fastmath={"contract"}, cache=True)
def _axpby_(table: Any, decay: Any, rate: Any) -> None:
    # w <- decay * w + rate * g, for each (address of w, address of g, length) of the table
    for i in range(table.shape[0]):
        num = table[i, 2]
        weight = numba.carray(pointer(table[i, 0], rate), num)
        grad = numba.carray(pointer(table[i, 1], rate), num)
        for j in range(num):
            weight[j] = decay * weight[j] + rate * grad[j]


def slices(lengths: list[int], num_threads: int) -> list[list[tuple[int, int, int]]]:
    """Cut tensors laid end to end into equal parts: (tensor, first element, length) for each thread.

    Cuts lie on cache lines of 16 numbers.

    Example:
        >>> from nero_tools.bench.bare import slices
        >>> slices([32, 64], 2)
        [[(0, 0, 32), (1, 0, 16)], [(1, 16, 48)]]
    """
    total = sum(lengths)
    parts: list[list[tuple[int, int, int]]] = [[] for _ in range(num_threads)]
    ends = [total * (k + 1) // num_threads for k in range(num_threads)]
    offset = thread = 0
    for tensor, length in enumerate(lengths):
        first = 0
        while first < length:
            room = (ends[thread] - offset - first) // 16 * 16
            if room <= 0 and thread < num_threads - 1:
                thread += 1
                continue
            num = length - first if thread == num_threads - 1 else min(room, length - first)
            parts[thread].append((tensor, first, num))
            first += num
        offset += length
    return parts


class Bare(Optimizer):
    """The bare loop over contiguous float32 parameters, as an optimizer that keeps no state."""

    def __init__(self, params: Iterable[torch.nn.Parameter]) -> None:
        super().__init__(params, {})
        self._params = self.param_groups[0]["params"]
        num_threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(max(num_threads - 1, 1))
        parts = slices([p.numel() for p in self._params], num_threads)
        self._parts = [np.array(part, dtype=np.int64).reshape(-1, 3).T for part in parts]

    def step(self, closure: None = None) -> None:
        """Let every thread do its slice."""
        # Gradients move between steps, so addresses are collected at each, as an optimizer must.
        weights = np.array([p.data_ptr() for p in self._params], dtype=np.int64)
        grads = np.array([p.grad.data_ptr() for p in self._params], dtype=np.int64)
        tables = [
            np.stack([weights[tensor] + 4 * first, grads[tensor] + 4 * first, num], axis=1)
            for tensor, first, num in self._parts
        ]
        others = [self._pool.submit(_axpby_, t, DECAY, RATE) for t in tables[1:]]
        _axpby_(tables[0], DECAY, RATE)
        for other in others:
            other.result()
