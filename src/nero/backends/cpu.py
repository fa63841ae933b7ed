"""The fused CPU backend: one pass over every row, in a small pool of threads.

The kernel itself is in `nero.backends.cpu_kernel`; here tasks become a table of addresses, and the table
is dealt out to threads. numba's own threading is not used: starting it would change torch's. A thread
takes the next slice of the table when it has finished one, so a disturbed core delays nobody.

Needs the extra `nero-optim[cpu]`.
"""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from nero.backends import plain
from nero.backends.geometry import Geometry, scatters_noise, task_geometry
from nero.backends.task import NeroTask

if TYPE_CHECKING:
    import numpy as np

# How a dtype's numbers are stored, as numpy calls it: it has no bfloat16.
_STORED_AS = {torch.float32: "float32", torch.bfloat16: "uint16", torch.float16: "int16"}
_LARGEST_SLICE = 1 << 20  # weights that one thread takes at a time, at most
_SMALLEST_SLICE = 1 << 16


def step_(tasks: Sequence[NeroTask]) -> None:
    """Update, in place, the weights and state of every task; gradients are only read."""
    mine = [task for task in tasks if task.weight.is_cpu]
    Plan(mine).step_([task.grad for task in mine], [float(task.options.lr) for task in mine])
    # As they are: to read a rate that lies on a device would mean to wait for it.
    plain.step_([task for task in tasks if not task.weight.is_cpu])


class Plan:
    """A step that is worked out once, and taken as often as nothing but gradients and rates change.

    Tasks that the kernel cannot walk go through the plain backend.

    Args:
        tasks: what to update; their gradients and learning rates serve as examples.
    """

    def __init__(self, tasks: Sequence[NeroTask]) -> None:
        walkable: dict[tuple[str, torch.dtype], list[tuple[int, NeroTask, Geometry]]] = {}
        self._others: list[tuple[int, NeroTask]] = []
        for index, task in enumerate(tasks):
            geometry = None if why_not(task.weight) else task_geometry(task)
            if geometry is None or task.weight.numel() == 0 or scatters_noise(task):
                self._others.append((index, _without_gradient(task)))
            else:
                kernel, geometry = _kernel(task, geometry)
                key = kernel, task.weight.dtype
                walkable.setdefault(key, []).append((index, task, geometry))
        # The longest first, so that threads finish together.
        self._tables = [_Table(*key, rows) for key, rows in walkable.items()]
        self._tables.sort(key=lambda table: -table.size)

    def step_(self, grads: Sequence[Tensor], rates: Sequence[float]) -> None:
        """Take the step, with the gradient and the learning rate of each task."""
        for table in self._tables:
            table.renew(grads, rates)
        _share_out([piece for table in self._tables for piece in table.pieces])
        for table in self._tables:
            table.finish()
        if self._others:
            plain.step_([_renewed(task, grads[i], rates[i]) for i, task in self._others])


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
    if not is_plannable(weight):
        return f"it is a {type(weight).__name__}, whose memory is its own affair"
    return missing()


def is_plannable(weight: Tensor) -> bool:
    """Tell, quickly, whether a parameter has memory that a plan can rely on.

    Example:
        >>> from nero.backends.cpu import is_plannable
        >>> is_plannable(torch.zeros(3, device="meta"))
        False
    """
    return weight.is_cpu and type(weight).__torch_dispatch__ is Tensor.__torch_dispatch__


_HAS_NUMBA = find_spec("numba") is not None


def missing() -> str | None:
    """Return what this backend lacks, or ``None``."""
    return None if _HAS_NUMBA else "numba is not installed: pip install 'nero-optim[cpu]'"


class _Table:
    """The tasks of one kernel and dtype as one record each, cut into pieces that threads take in turn."""

    def __init__(
        self, kernel: str, dtype: torch.dtype, rows: Sequence[tuple[int, NeroTask, Geometry]]
    ) -> None:
        import numpy as np

        from nero.backends import cpu_kernel

        self._indices = [index for index, _, _ in rows]
        self._weights = [task.weight for _, task, _ in rows]
        # Weights and state are alive as long as their addresses are here; gradients come and go.
        self._tasks = [_without_gradient(task) for _, task, _ in rows]
        self._records = np.array(
            [_record(task, geometry) for _, task, geometry in rows], cpu_kernel.RECORD
        )
        self.size = sum(weight.numel() for weight in self._weights)
        self._chunks, slices = _cut([geometry for _, _, geometry in rows], kernel, self.size)
        self._skipped = np.zeros(len(self._chunks), np.int64)
        self.pieces = [
            _Piece(
                getattr(cpu_kernel, f"walk_{kernel}"),
                _STORED_AS[dtype],
                (self._records, self._chunks[a:b], self._skipped[a:b]),
            )
            for a, b in slices
        ]

    def renew(self, grads: Sequence[Tensor], rates: Sequence[float]) -> None:
        """Note where gradients lie now, and how far to turn."""
        self._records["grad"] = [grads[i].data_ptr() for i in self._indices]
        self._records["lr"] = [rates[i] for i in self._indices]

    def finish(self) -> None:
        """Count the step."""
        from nero.backends.cpu_kernel import add_counts

        add_counts(self._records, self._chunks, self._skipped)
        # Autograd must see that weights have changed, although no torch operation changed them.
        increment_version(self._weights)


class _Piece(NamedTuple):
    kernel: Callable[..., None]
    stored_as: str
    args: tuple[Any, ...]


def _share_out(pieces: Sequence[_Piece]) -> None:
    """Run the pieces on as many threads as torch would use."""
    from nero.backends.cpu_kernel import make_room

    todo = iter(pieces)

    def work() -> None:
        rooms: dict[str, tuple[Any, ...]] = {}
        for piece in todo:
            if piece.stored_as not in rooms:
                rooms[piece.stored_as] = make_room(piece.stored_as)
            piece.kernel(*rooms[piece.stored_as], *piece.args)

    num_threads = min(torch.get_num_threads(), len(pieces))
    helpers = [_pool(os.getpid(), num_threads).submit(work) for _ in range(num_threads - 1)]
    work()
    for helper in helpers:
        helper.result()


def _kernel(task: NeroTask, geometry: Geometry) -> tuple[str, Geometry]:
    """Choose the kernel of a task, and the loops that it needs."""
    if task.scale is not None:
        return "elements", geometry
    if geometry.is_rows and not task.options.stochastic_rounding:
        return "rows", geometry
    return "columns", geometry.as_columns()


def _without_gradient(task: NeroTask) -> NeroTask:
    return task._replace(grad=task.grad.new_empty(0))


def _renewed(task: NeroTask, grad: Tensor, rate: float) -> NeroTask:
    grad = grad.view(task.weight.shape)  # as the task sees its weight
    return task._replace(grad=grad, options=task.options._replace(lr=rate))


def _record(task: NeroTask, geometry: Geometry) -> tuple[Any, ...]:
    """Return a record of the table; where its gradient lies and its learning rate come with each step."""
    options = task.options
    radius = task.constraint.radius
    target = math.nan if radius is None or radius == "initial" else radius
    return (
        task.weight.data_ptr(),
        0,
        task.avg_norm.data_ptr(),
        0 if task.radius is None else task.radius.data_ptr(),
        0 if task.scale is None else task.scale.data_ptr(),
        task.step.data_ptr(),
        task.num_skipped.data_ptr(),
        *geometry,
        task.constraint.centre,
        options.nonfinite == "propagate",
        options.stochastic_rounding,
        options.seed,
        task.stream,
        0.0,
        options.beta,
        target,
        options.bias_scale,
        options.gain_penalty,
        -1.0 if options.maximize else 1.0,
    )


def _cut(
    geometries: Sequence[Geometry], kernel: str, size: int
) -> "tuple[np.ndarray[Any, Any], list[tuple[int, int]]]":
    """Cut tensors into chunks (tensor, first neuron, last neuron), and deal chunks into slices.

    Slices get smaller towards the end, so that threads finish together.
    """
    import numpy as np

    from nero.backends.cpu_kernel import NEURONS

    chunks: list[tuple[int, int, int]] = []
    slices: list[tuple[int, int]] = []
    start = done = filled = 0
    for tensor, geometry in enumerate(geometries):
        fan_in = geometry.fan_outer * geometry.fan_inner
        first, end = 0, geometry.outer * geometry.inner
        while first < end:
            target = min(max((size - done) // 16, _SMALLEST_SLICE), _LARGEST_SLICE)
            last = min(first + max((target - filled) // fan_in, 1), end)
            if kernel == "columns":  # those of a chunk share their outer loop
                outer_end = (first // geometry.inner + 1) * geometry.inner
                last = min(last, first + NEURONS, outer_end)
            chunks.append((tensor, first, last))
            filled += (last - first) * fan_in
            first = last
            if filled >= target:
                slices.append((start, len(chunks)))
                done += filled
                start, filled = len(chunks), 0
    if filled:
        slices.append((start, len(chunks)))
    return np.array(chunks, np.int64), slices


@lru_cache(maxsize=8)
def _pool(process: int, num_threads: int) -> ThreadPoolExecutor:
    # One a process: threads do not survive a fork.
    return ThreadPoolExecutor(max(num_threads - 1, 1), thread_name_prefix="nero")
