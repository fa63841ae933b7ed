# mypy: ignore-errors
# (numba compiles this file by its own rules, which type checkers do not know.)
"""The physical limit: a loop that reads w and g and writes w, and does nothing else.

Three memory streams are the least that any optimiser moves which touches every weight. It is driven as our
own CPU kernel is: a serial kernel without the GIL, on one slice of the elements per thread.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import torch
from numba.core import types
from numba.extending import intrinsic
from torch import nn

from nero.bench import Stepper
from nero.bench.rivals import SGD_LR

DECAY = np.float32(0.999)
RATE = np.float32(-SGD_LR)


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    signature = types.CPointer(types.float32)(address)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return signature, generate


@numba.njit(nogil=True, fastmath={"contract"}, cache=True)
def _axpby_(table: Any, decay: Any, rate: Any) -> None:
    # w <- decay * w + rate * g, for each (address of w, address of g, length) of the table
    for i in range(table.shape[0]):
        num = table[i, 2]
        weight = numba.carray(_pointer(table[i, 0]), num)
        grad = numba.carray(_pointer(table[i, 1]), num)
        for j in range(num):
            weight[j] = decay * weight[j] + rate * grad[j]


def slices(lengths: list[int], num_threads: int) -> list[list[tuple[int, int, int]]]:
    """Cut tensors laid end to end into equal parts: (tensor, first element, length) for each thread.

    Cuts lie on cache lines of 16 numbers.

    Example:
        >>> from benchmarks.bare import slices
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


def bare(model: nn.Module) -> Stepper:
    """Return the bare loop over a contiguous float32 model."""
    params = list(model.parameters())
    num_threads = torch.get_num_threads()
    parts = slices([p.numel() for p in params], num_threads)
    pool = ThreadPoolExecutor(max(num_threads - 1, 1))
    step = _Step(params, parts, pool)
    return Stepper(step)


class _Step:
    def __init__(
        self,
        params: list[nn.Parameter],
        parts: list[list[tuple[int, int, int]]],
        pool: ThreadPoolExecutor,
    ) -> None:
        self._params, self._pool = params, pool
        self._index = [np.array([t for t, _, _ in part], dtype=np.int64) for part in parts]
        self._first = [np.array([f for _, f, _ in part], dtype=np.int64) for part in parts]
        self._num = [np.array([n for _, _, n in part], dtype=np.int64) for part in parts]

    def __call__(self) -> None:
        # Gradients move between steps, so addresses are collected at each, as an optimiser must.
        weights = np.array([p.data_ptr() for p in self._params], dtype=np.int64)
        grads = np.array([p.grad.data_ptr() for p in self._params], dtype=np.int64)
        tables = [
            np.stack([weights[i] + 4 * f, grads[i] + 4 * f, n], axis=1)
            for i, f, n in zip(self._index, self._first, self._num, strict=True)
        ]
        others = [self._pool.submit(_axpby_, t, DECAY, RATE) for t in tables[1:]]
        _axpby_(tables[0], DECAY, RATE)
        for other in others:
            other.result()
