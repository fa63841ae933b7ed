"""The fused CPU backend: one pass over every row, in a small pool of threads.

The kernel itself is in `nero.backends.cpu.kernel`; this module turns updates into a table of addresses, and
distributes the table to threads. numba's own threading is not used, since starting it would change torch's.
A thread takes the next slice of the table when it has finished one, so a slow core does not delay others.

Needs the extra `nero-optim[cpu]`.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from nero.backends import plain
from nero.backends.geometry import Geometry, is_opaque, scatters_noise, update_geometry
from nero.backends.halves import Buffers
from nero.core.gram import Gram
from nero.core.rule import Turn
from nero.core.update import Update, average_dtype

if TYPE_CHECKING:
    import numpy as np

# The numpy dtype in which a torch dtype is stored; numpy has no bfloat16.
_STORED_AS = {torch.float32: "float32", torch.bfloat16: "uint16", torch.float16: "int16"}
_LARGEST_SLICE = 1 << 20  # weights that a thread takes at a time
_SMALLEST_SLICE = 1 << 16


class CpuBackend:
    """Steps parameters with the kernel, with a plan that is reused if only gradients and ``lr`` change."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self._signature: object = None

    def step_(self, updates: Sequence[Update]) -> None:
        """Update, in place, the weights and state of every parameter; gradients are only read."""
        plan = self._plan_for(updates, Plan)
        for table in plan.tables:
            table.renew(updates)
        with _shared_out(plan.tables) as todo:
            _take(todo)
        for table in plan.tables:
            table.finish()
        if plan.others:
            plain.step_([updates[i] for i in plan.others])

    def gram(self, updates: Sequence[Update]) -> list[Gram]:
        """Compute the Gram matrix of this rank's part of every neuron."""
        plan = self._plan_for(updates, SharedPlan)
        for table in plan.tables:
            table.renew(updates, "sum_columns")
        with _shared_out(plan.tables) as todo:
            _take(todo)
        return [
            plain.gram_of(update) if i in plan.others else Gram(plan.buffers[i].gram)
            for i, update in enumerate(updates)
        ]

    def apply_(self, updates: Sequence[Update], turns: Sequence[Turn]) -> None:
        """Write new rows and state, with the plan made by the last call of `gram`."""
        plan = self.plan
        assert isinstance(plan, SharedPlan), "gram comes first"
        for i, turn in enumerate(turns):
            if i in plan.others:
                plain.write_rows_(updates[i], turn)
            else:
                plan.buffers[i].set(turn)
        for table in plan.tables:
            table.renew(updates, "write_columns")
        with _shared_out(plan.tables) as todo:
            _take(todo)
        # Last, because the noise depends on the step counter before it is incremented.
        for update, turn in zip(updates, turns, strict=True):
            plain.write_state_(update, turn)
        for table in plan.tables:
            increment_version(table.weights)

    def _plan_for(self, updates: Sequence[Update], kind: "type[Plan]") -> "Plan":
        signature = [_signature(update) for update in updates]
        if type(self.plan) is not kind or signature != self._signature:
            self.plan, self._signature = kind(updates), signature
        return self.plan


def _signature(update: Update) -> tuple[object, ...]:
    """Return what a plan depends on: options, and the addresses, dtypes and strides of tensors."""
    weight, grad = update.weight, update.grad
    return (
        update.hyper,
        update.neurons,
        update.position,
        update.places,
        weight.data_ptr(),
        weight.dtype,
        weight.stride(),
        grad.dtype,
        grad.stride(),
        *map(Tensor.data_ptr, update.state.values()),
    )


class Plan:
    """A reusable step: tables for the kernel, and the updates that only the plain backend can walk.

    Args:
        updates: the updates; their gradients and learning rates may change later.
    """

    def __init__(self, updates: Sequence[Update]) -> None:
        walkable: dict[
            tuple[str, torch.dtype, torch.dtype | None], list[tuple[int, Update, Geometry]]
        ] = {}
        self.others: list[int] = []
        """Indices of updates that the kernel cannot walk."""
        self.buffers: dict[int, Buffers] = {}
        """Buffers of updates whose fan-in is sharded."""
        for i, update in enumerate(updates):
            geometry = None if why_not(update.weight) else update_geometry(update)
            if geometry is None or update.weight.numel() == 0 or scatters_noise(update):
                self.others.append(i)
                continue
            kernel, geometry = self._kernel(update, geometry)
            key = kernel, update.weight.dtype, average_dtype(update)
            walkable.setdefault(key, []).append((i, update, geometry))
        self.tables = [Table(*key, rows, self._addresses) for key, rows in walkable.items()]
        # Longest first, so that threads finish together.
        self.tables.sort(key=lambda table: -table.size)

    def _kernel(self, update: Update, geometry: Geometry) -> tuple[str, Geometry]:
        """Choose an update's kernel, and the loops that it needs."""
        if update.neurons.is_elementwise:
            return "walk_elements", geometry
        if geometry.is_rows and not update.hyper.stochastic_rounding:
            return "walk_rows", geometry
        return "walk_columns", geometry.as_columns()

    def _addresses(self, index: int, update: Update) -> dict[str, int]:
        """Return the record's addresses other than those of the parameter and its state."""
        return {}


class SharedPlan(Plan):
    """A plan for sharded fan-ins: one pass sums the neurons, another writes them."""

    def _kernel(self, update: Update, geometry: Geometry) -> tuple[str, Geometry]:
        return "sum_columns", geometry.as_columns()

    def _addresses(self, index: int, update: Update) -> dict[str, int]:
        average = update.state["exp_avg_norm"]
        self.buffers[index] = Buffers.new(average.shape, average.dtype, average.device)
        return self.buffers[index].addresses()


def why_not(weight: Tensor) -> str | None:
    """Return why this backend cannot update a parameter, or ``None``; its memory order is not checked.

    Example:
        >>> from nero.backends.cpu import why_not
        >>> why_not(torch.zeros(3, dtype=torch.float64))
        'it is torch.float64'
    """
    if weight.device.type != "cpu":
        return f"it is on {weight.device}"
    if weight.dtype not in _STORED_AS:
        return f"it is {weight.dtype}"
    if is_opaque(weight):
        return f"it is a {type(weight).__name__}, whose memory layout is opaque to us"
    if not torch.compiler.is_compiling() and weight.is_neg():
        return "its negative bit is set, so its memory has the opposite sign; call resolve_neg()"
    return missing()


_HAS_NUMBA = find_spec("numba") is not None


def missing() -> str | None:
    """Return why this backend is unavailable, or ``None`` if it is available."""
    return None if _HAS_NUMBA else "numba is not installed: pip install 'nero-optim[cpu]'"


class Table:
    """The updates of one kernel and dtype, one record each, split into pieces that threads take in turn."""

    def __init__(
        self,
        kernel: str,
        dtype: torch.dtype,
        average: torch.dtype | None,
        rows: Sequence[tuple[int, Update, Geometry]],
        addresses: Callable[[int, Update], dict[str, int]],
    ) -> None:
        import numpy as np

        # Kernels are compiled for the types of these numbers.
        self.types = [
            None if each is None else np.dtype(_STORED_AS[each]).type(0)
            for each in (dtype, average)
        ]
        from nero.backends.cpu import kernel as kernels

        self.kernel: Callable[..., None] = getattr(kernels, kernel)
        self._kernels = kernels
        self._indices = [index for index, _, _ in rows]
        self.weights = [update.weight for _, update, _ in rows]
        # Keeps weights and state alive as long as their addresses are here, but not gradients.
        self._kept = [update._replace(grad=update.grad.new_empty(0)) for _, update, _ in rows]
        self._records = np.zeros(len(rows), kernels.RECORD)
        for record, (index, update, geometry) in zip(self._records, rows, strict=True):
            columns = {
                "weight": update.weight.data_ptr(),
                **{key: tensor.data_ptr() for key, tensor in update.state.items()},
                **geometry._asdict(),
                "position": update.position,
                "start": 0 if update.places is None else update.places.start,
                **update.hyper.encode(),
                **addresses(index, update),
            }
            for name, value in columns.items():
                record[name] = value
        self.size = sum(weight.numel() for weight in self.weights)
        self._chunks, slices = _split([geometry for _, _, geometry in rows], kernel, self.size)
        table, chunks = self._records.ctypes.data, self._chunks.ctypes.data
        self._all = table, len(rows), chunks, len(self._chunks)
        self.pieces = [(table, chunks + a * self._chunks.strides[0], b - a) for a, b in slices]

    def renew(self, updates: Sequence[Update], kernel: str | None = None) -> None:
        """Set the addresses of gradients, the learning rates, and the kernel to run next."""
        if kernel is not None:
            self.kernel = getattr(self._kernels, kernel)
        members = [updates[i] for i in self._indices]
        self._records["grad"] = [update.grad.data_ptr() for update in members]
        if kernel is None:  # if the fan-in is sharded, the coefficients include lr
            lrs = {id(lr): lr for lr in [update.lr for update in members]}  # to read each once
            numbers = {key: float(lr) for key, lr in lrs.items()}
            self._records["lr"] = [numbers[id(update.lr)] for update in members]

    def finish(self) -> None:
        """Count the step."""
        self._kernels.add_counts(*self._all)
        # Bump version counters, because the kernel writes weights without autograd noticing.
        increment_version(self.weights)


@contextmanager
def _shared_out(tables: Sequence[Table]) -> Iterator[Iterator[tuple[Table, Any]]]:
    """Start helper threads on the pieces: as many as torch uses, counting the calling thread."""
    pieces = [(table, piece) for table in tables for piece in table.pieces]
    todo = iter(pieces)
    num_threads = min(torch.get_num_threads(), len(pieces))
    helpers = [_pool(os.getpid(), num_threads).submit(_take, todo) for _ in range(num_threads - 1)]
    yield todo
    for helper in helpers:
        helper.result()


def _take(todo: Iterator[tuple[Table, Any]]) -> None:
    """Take pieces until none are left."""
    import numpy as np

    from nero.backends.cpu.kernel import SCRATCH_BYTES

    scratch = np.zeros(SCRATCH_BYTES, np.uint8)
    for table, piece in todo:
        table.kernel(*table.types, scratch.ctypes.data, *piece)


def _split(
    geometries: Sequence[Geometry], kernel: str, size: int
) -> "tuple[np.ndarray[Any, Any], list[tuple[int, int]]]":
    """Split tensors into the kernel's chunks, and group chunks into slices.

    Slices get smaller towards the end, so that threads finish together.
    """
    import numpy as np

    from nero.backends.cpu.kernel import NEURONS

    chunks: list[tuple[int, int, int, int]] = []
    slices: list[tuple[int, int]] = []
    start = done = filled = 0
    for tensor, geometry in enumerate(geometries):
        fan_in = geometry.fan_outer * geometry.fan_inner
        first, end = 0, geometry.outer * geometry.inner
        while first < end:
            target = min(max((size - done) // 16, _SMALLEST_SLICE), _LARGEST_SLICE)
            last = min(first + max((target - filled) // fan_in, 1), end)
            if kernel.endswith("columns"):  # neurons of a chunk must share their outer loop
                outer_end = (first // geometry.inner + 1) * geometry.inner
                last = min(last, first + NEURONS, outer_end)
            chunks.append((tensor, first, last, 0))
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
    # One pool per process, because threads do not survive a fork.
    return ThreadPoolExecutor(max(num_threads - 1, 1), thread_name_prefix="nero")
