"""The fused CPU backend: one pass over every row, in a small pool of threads.

The kernel itself is in `nero.backends.cpu_kernel`; here tasks become a table of addresses, and the table
is dealt out to threads. numba's own threading is not used: starting it would change torch's. A thread
takes the next slice of the table when it has finished one, so a disturbed core delays nobody.

Needs the extra `nero-optim[cpu]`.
"""

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from nero.backends import plain
from nero.backends.geometry import Geometry, task_geometry
from nero.backends.task import NeroTask
from nero.functional.sharding import is_sharded

if TYPE_CHECKING:
    import numpy as np

# How a dtype's numbers are stored, as numpy calls it: it has no bfloat16.
_STORED_AS = {torch.float32: "float32", torch.bfloat16: "uint16", torch.float16: "int16"}
_CHUNK = 1 << 17  # weights that one thread walks at a time
_SLICE = 1 << 20  # weights that one thread takes at a time
_SERIAL = 1 << 16  # weights below which waking a second thread costs more than it saves


def step_(tasks: Sequence[NeroTask]) -> None:
    """Update, in place, the weights and state of every task; gradients are only read.

    A task that the kernel cannot walk goes through the plain backend.
    """
    by_dtype: dict[torch.dtype, list[tuple[NeroTask, Geometry]]] = {}
    others = []
    rates = _rates(tasks)
    for task in tasks:
        if rates[id(task.options)] == 0:
            continue  # changes nothing
        geometry = None if why_not(task.weight) else task_geometry(task)
        if geometry is None or task.weight.numel() == 0:
            others.append(task)
        else:
            by_dtype.setdefault(task.weight.dtype, []).append((task, geometry))
    for dtype, group in by_dtype.items():
        _run(dtype, group, rates)
    if others:
        plain.step_(others)


def why_not(weight: Tensor) -> str | None:
    """Return why a parameter cannot take this backend, or ``None``; its memory is not looked at.

    Example:
        >>> from nero.backends.cpu import why_not
        >>> why_not(torch.zeros(3, dtype=torch.float64))
        'it is torch.float64'
    """
    if weight.device.type != "cpu":
        return f"it is on {weight.device}"
    if weight.dtype not in _STORED_AS:
        return f"it is {weight.dtype}"
    if is_sharded(weight):
        return "it is sharded (a DTensor)"
    return missing()


_HAS_NUMBA = find_spec("numba") is not None


def missing() -> str | None:
    """Return what this backend lacks, or ``None``."""
    return None if _HAS_NUMBA else "numba is not installed: pip install 'nero-optim[cpu]'"


def _run(
    dtype: torch.dtype, group: list[tuple[NeroTask, Geometry]], rates: dict[int, float]
) -> None:
    import numpy as np

    from nero.backends.cpu_kernel import RECORD, run

    like = np.zeros(1, _STORED_AS[dtype])
    table = np.array([_record(task, geometry, rates) for task, geometry in group], RECORD)
    kinds = tuple((geometry, task.scale is not None) for task, geometry in group)
    slices = _slices(kinds)
    skipped = [np.zeros(len(chunks), np.int64) for chunks in slices]
    parts = iter(zip(slices, skipped, strict=True))

    def work() -> None:
        for chunks, counts in parts:
            run(like, table, chunks, counts)

    num_threads = min(torch.get_num_threads(), len(slices))
    helpers = [_pool(os.getpid(), num_threads).submit(work) for _ in range(num_threads - 1)]
    work()
    for helper in helpers:
        helper.result()

    # Autograd must see that weights have changed, although no torch operation changed them.
    increment_version([task.weight for task, _ in group])
    torch._foreach_add_([task.step for task, _ in group], 1)
    for chunks, counts in zip(slices, skipped, strict=True):
        for index in counts.nonzero()[0]:
            group[chunks[index, 0]][0].num_skipped.add_(int(counts[index]))


def _rates(tasks: Sequence[NeroTask]) -> dict[int, float]:
    """Return the learning rate of each group's options, as a number."""
    rates = {}
    for task in tasks:
        options = task.options
        if id(options) not in rates:
            rates[id(options)] = float(options.lr)
    return rates


def _record(task: NeroTask, geometry: Geometry, rates: dict[int, float]) -> tuple[Any, ...]:
    options = task.options
    radius = task.constraint.radius
    target = math.nan if radius is None or radius == "initial" else radius
    return (
        task.weight.data_ptr(),
        task.grad.data_ptr(),
        task.avg_norm.data_ptr(),
        0 if task.radius is None else task.radius.data_ptr(),
        0 if task.scale is None else task.scale.data_ptr(),
        task.step.data_ptr(),
        *geometry,
        task.scale is not None,
        task.constraint.centre,
        options.nonfinite == "propagate",
        options.stochastic_rounding,
        options.seed,
        task.stream,
        rates[id(options)],
        options.beta,
        target,
        options.bias_scale,
        options.gain_penalty,
        -1.0 if options.maximize else 1.0,
    )


@lru_cache(maxsize=64)
def _slices(kinds: tuple[tuple[Geometry, bool], ...]) -> "list[np.ndarray[Any, Any]]":
    """Cut tensors into chunks (tensor, first neuron, last neuron), and deal chunks into slices."""
    import numpy as np

    from nero.backends.cpu_kernel import COLUMNS

    slices, chunks, size = [], [], 0
    for tensor, (geometry, is_elements) in enumerate(kinds):
        fan_in = geometry.fan_outer * geometry.fan_inner
        for first, last in _pieces(geometry, is_elements, fan_in, COLUMNS):
            chunks.append((tensor, first, last))
            size += (last - first) * fan_in
            if size >= _SLICE:
                slices.append(np.array(chunks, np.int64))
                chunks, size = [], 0
    if chunks:
        slices.append(np.array(chunks, np.int64))
    total = sum(g.outer * g.inner * g.fan_outer * g.fan_inner for g, _ in kinds)
    return [np.concatenate(slices)] if total <= _SERIAL else slices


def _pieces(
    geometry: Geometry, is_elements: bool, fan_in: int, num_columns: int
) -> list[tuple[int, int]]:
    if is_elements or geometry.is_rows:
        each = max(_CHUNK // fan_in, 1)
        return [(i, min(i + each, geometry.outer)) for i in range(0, geometry.outer, each)]
    return [
        (a * geometry.inner + b, a * geometry.inner + min(b + num_columns, geometry.inner))
        for a in range(geometry.outer)
        for b in range(0, geometry.inner, num_columns)
    ]


@lru_cache(maxsize=8)
def _pool(process: int, num_threads: int) -> ThreadPoolExecutor:
    # One a process: threads do not survive a fork.
    return ThreadPoolExecutor(max(num_threads - 1, 1), thread_name_prefix="nero")
