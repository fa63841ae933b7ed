"""The GPU backend: one Triton launch for all neurons of the model.

The kernel walks a table of addresses, so a step takes two launches for any number of tensors: one advances
the step counters, one updates. Each further combination of dtype, momentum and stochastic rounding adds a
launch, and so does each of the lengths in `KEPT` that the model has rows of, since long rows need more
warps. If the fan-in is sharded, the sums take one launch, and the new rows two. ``lr`` and ``step`` are
read on the device, so a step never synchronizes, and once the table is built, the step can be captured in
a CUDA graph. Tensors that the kernel cannot walk go to the plain backend; `why_not` says why.

Note:
    This code has been tested against the plain backend in Triton's interpreter and, as PTX for sm_80, sm_90
    and sm_100, in an emulator; it compiles for sm_80 to sm_120 and gfx942. We have neither run nor timed it
    on a GPU, where `nero.backends.triton.trust` tests it before its first step.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from nero.backends import plain
from nero.backends.geometry import scatters_noise, update_geometry
from nero.backends.halves import Buffers
from nero.backends.triton.table import (
    INTEGERS,
    KEPT,
    NUM_FACTORS,
    Entry,
    Phase,
    device_lr,
    kept_length,
    table_entry,
    walk_of,
)
from nero.core.gram import Gram
from nero.core.precision import dtype_name, working_dtype
from nero.core.rule import Turn
from nero.core.update import Update, average_dtype, rounds_weight

_TENSORS_PER_PROGRAM = 128  # in the launch that advances the steps
COMPILATION = {"num_warps": 2, "enable_fp_fusion": False}  # the kernel is memory-bound either way
_MAX_TABLES = 32  # per backend: gradients return to a few sets of addresses
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Variant(NamedTuple):
    """One compiled kernel: the properties shared by all tensors of a launch."""

    device: torch.device
    dtype: torch.dtype
    stochastic: bool
    momentum: torch.dtype | None = None
    """The dtype of the momentum buffer, if there is one."""
    shared: bool = False
    """Whether the step is taken in two halves, because the fan-in is sharded."""
    kept: int = 0
    """The row length, one of `KEPT`, that this launch keeps in registers; 0 for all other tiles."""


Judge: TypeAlias = Callable[[Variant], bool]
"""Returns whether a kernel can be trusted."""


class TritonBackend:
    """The kernels, with the tables of one optimizer.

    Recent tables are cached; those read by a CUDA graph are kept as long as the backend lives, because a
    graph holds no reference to them.

    Args:
        judge: called before every launch; if it returns ``False``, the plain backend runs the step instead,
            or, for long rows, the launch that reads them twice.
        keeps_rows: whether rows of more than 1,024 weights are kept in registers, by launches of their own.
    """

    def __init__(self, judge: Judge | None = None, *, keeps_rows: bool = True) -> None:
        self._judge, self._keeps_rows = judge, keeps_rows
        self._tables: OrderedDict[_Key, Table] = OrderedDict()
        self._captured: list[Table] = []
        self.num_built = 0
        """Number of tables built so far."""

    def step_(self, updates: Sequence[Update]) -> None:
        """Update, in place, the weights and state of every parameter; gradients are only read.

        Note:
            While addresses stay the same, only a changed ``lr`` that is a number is copied to the device.
            In a CUDA graph addresses must stay the same: step once before the capture, and clear gradients
            with ``zero_grad(set_to_none=False)``.

        Raises:
            RuntimeError: if a copy is needed while a CUDA graph is being captured.
        """
        launches, others = self._sorted(updates)
        plain.step_([updates[i] for i in others])
        for table, indices in self._tables_for(updates, launches):
            members = [updates[i] for i in indices]
            table.set_lr([update.lr for update in members])
            _run(table)
            _mark_changed(members)

    def gram(self, updates: Sequence[Update]) -> list[Gram]:
        """Compute the Gram matrix of this rank's part of every neuron."""
        launches, others = self._sorted(updates, shared=True)
        products = {i: plain.gram_of(updates[i]) for i in others}
        for table, indices in self._tables_for(map(_without_lr, updates), launches):
            _run(table, Phase.SUMS)
            for i, buffers in zip(indices, table.buffers, strict=True):
                shape = updates[i].state["exp_avg_norm"].shape
                products[i] = Gram(buffers.gram.view(-1, *shape))
        return [products[i] for i in range(len(updates))]

    def apply_(self, updates: Sequence[Update], turns: Sequence[Turn]) -> None:
        """Write new rows and state."""
        launches, others = self._sorted(updates, shared=True)
        for i in others:
            plain.write_rows_(updates[i], turns[i])
        for table, indices in self._tables_for(map(_without_lr, updates), launches):
            for i, buffers in zip(indices, table.buffers, strict=True):
                buffers.set(turns[i])
            _run(table, Phase.ROWS)
            _mark_changed([updates[i] for i in indices])
        # Last, because the noise depends on the step counter before it is incremented.
        for update, turn in zip(updates, turns, strict=True):
            plain.write_state_(update, turn)

    def _sorted(
        self, updates: Sequence[Update], *, shared: bool = False
    ) -> tuple[dict[Variant, list[int]], list[int]]:
        """Return the indices of updates by kernel, and of those for the plain backend."""
        launches: dict[Variant, list[int]] = {}
        others = []
        for i, update in enumerate(updates):
            if why_not(update) is None:
                variant = variant_of(update)._replace(shared=shared)
                if shared or not self._keeps_rows:
                    variant = variant._replace(kept=0)
                launches.setdefault(variant, []).append(i)
            else:
                others.append(i)
        if self._judge is not None:  # judge all of them before anything changes
            for variant in [variant for variant in launches if not self._judge(variant)]:
                indices, twice = launches.pop(variant), variant._replace(kept=0)
                if variant.kept and self._judge(twice):
                    launches.setdefault(twice, []).extend(indices)
                else:
                    others += indices
        return launches, others

    def _tables_for(
        self, updates: Iterable[Update], launches: dict[Variant, list[int]]
    ) -> Iterator[tuple["Table", list[int]]]:
        """Yield every device's table, and the indices of its updates in order."""
        updates = list(updates)
        for device in dict.fromkeys(variant.device for variant in launches):
            here = {v: indices for v, indices in launches.items() if v.device == device}
            table = self._table(
                tuple((v, tuple(table_entry(updates[i]) for i in here[v])) for v in here)
            )
            if is_capturing(device) and table not in self._captured:
                self._captured.append(table)
            yield table, [i for indices in here.values() for i in indices]

    def _table(self, key: "_Key") -> "Table":
        if key not in self._tables:
            self._tables[key] = Table(key)
            self.num_built += 1
            if len(self._tables) > _MAX_TABLES:
                self._tables.popitem(last=False)
        self._tables.move_to_end(key)
        return self._tables[key]


_Key: TypeAlias = tuple[tuple[Variant, tuple[Entry, ...]], ...]


def _without_lr(update: Update) -> Update:
    """Set ``lr`` to zero, since the coefficients include it, and an ``lr`` tensor's address may change.

    The kernel then does not count the step; `plain.write_state_` counts it.
    """
    return update._replace(lr=0.0)


def _mark_changed(updates: Sequence[Update]) -> None:
    """Tell autograd that weights have changed without a torch operation."""
    increment_version([update.weight for update in updates])


def variant_of(update: Update) -> Variant:
    """Return the kernel for an update."""
    weight, stochastic, momentum = update.weight, rounds_weight(update), average_dtype(update)
    kept = kept_length(update, stochastic=stochastic, momentum=momentum)
    return Variant(weight.device, weight.dtype, stochastic, momentum, kept=kept)


def why_not(update: Update) -> str | None:
    """Return why this backend cannot run an update, such as "memory order", or ``None`` if it can.

    Triton's interpreter, enabled by ``TRITON_INTERPRET=1``, runs on the CPU.
    """
    weight, grad, lr = update.weight, update.grad, update.lr
    average = update.state["exp_avg_norm"]
    subclasses = [type(x) for x in (weight, grad) if type(x) not in (Tensor, nn.Parameter)]
    if subclasses:
        return f"it is a tensor subclass, {subclasses[0].__name__}"
    reason = why_not_device(weight.device)
    if reason is not None:
        return reason
    if weight.dtype not in _DTYPES or grad.dtype != weight.dtype:
        return f"its weights are {weight.dtype} and its gradients {grad.dtype}"
    if average.dtype != working_dtype(weight.dtype):
        return f"its state is {average.dtype} and its weights {weight.dtype}"
    if isinstance(lr, Tensor) and lr.device.type != "cpu" and device_lr(lr, weight.device) is None:
        return f"its lr is {lr.dtype} on {lr.device}"
    return _why_not_memory(update)


@lru_cache(maxsize=64)
def why_not_device(device: torch.device) -> str | None:
    """Return why this backend cannot run on ``device``, or ``None`` if it can."""
    if find_spec("triton") is None:
        return "triton is not installed"
    if device.type == "cuda":
        is_old = torch.version.hip is None and torch.cuda.get_device_capability(device) < (7, 0)
        return "the GPU is older than Volta (compute capability 7.0)" if is_old else None
    if device.type == "cpu":
        return None if _is_interpreted() else "it is on the CPU"
    return f"it is on {device.type}"


def _why_not_memory(update: Update) -> str | None:
    geometry, num_neurons = update_geometry(update), update.state["exp_avg_norm"].numel()
    if update.weight.numel() == 0:
        return "empty"
    is_elements = update.neurons.is_elementwise
    walk = None if geometry is None else walk_of(geometry, is_elements=is_elements)
    # The count guards against gaps between neurons that four loops cannot describe.
    if geometry is None or walk is None or geometry.outer * geometry.inner != num_neurons:
        return "memory order"
    # The momentum buffer has the weight's memory order: see update_geometry.
    rest = [tensor for key, tensor in update.state.items() if key != "exp_avg"]
    if not all(tensor.is_contiguous() for tensor in rest):
        return "memory order of the state"
    if scatters_noise(update):
        return "memory order: stochastic rounding depends on positions"
    return None


class Table:
    """The rows of all tensors on a device, and the learning rates that come from the host."""

    def __init__(self, key: _Key) -> None:
        entries = [entry for _, members in key for entry in members]
        device = key[0][0].device
        self._lr_values: list[float] | None = None
        self._lrs = torch.zeros(len(entries), dtype=torch.float64, device=device)
        self.tiles: dict[Variant, Tensor] = {}
        """The tensor index of every tile, per launch."""
        self.buffers: list[Buffers] = []
        """One per tensor whose fan-in is sharded."""
        rows: list[list[int]] = []
        for variant, members in key:
            counts = torch.tensor([entry.num_tiles for entry in members])
            tensors = torch.arange(len(rows), len(rows) + len(members), dtype=torch.int32)
            self.tiles[variant] = _to_device(tensors.repeat_interleave(counts), device)
            sizes = [(entry.num_neurons,) for entry in members if variant.shared]
            dtype = working_dtype(variant.dtype)
            buffers = [Buffers.new(size, dtype, device) for size in sizes]
            rows += _table_rows(members, buffers, lrs=self._lrs[len(rows) :].data_ptr())
            self.buffers += buffers
        self.rows = _to_device(torch.tensor(rows, dtype=torch.int64), device)
        numbers = torch.tensor([entry.numbers for entry in entries], dtype=torch.float64)
        self.numbers = _to_device(numbers, device)
        self.factors = torch.zeros(len(entries), NUM_FACTORS, dtype=torch.float64, device=device)
        """Factors and seeds are written and read by every step."""
        self.seeds = torch.zeros(len(entries), dtype=torch.int64, device=device)

    def set_lr(self, lrs: Sequence[float | Tensor]) -> None:
        """Copy learning rates to the device if kernels cannot read them directly."""
        device = self.rows.device
        values = [float(lr) if device_lr(lr, device) is None else 0.0 for lr in lrs]
        if values != self._lr_values:
            self._lrs.copy_(_to_device(torch.tensor(values, dtype=torch.float64), device))
            self._lr_values = values


def _table_rows(
    entries: Sequence[Entry], buffers: Sequence[Buffers], *, lrs: int
) -> list[list[int]]:
    rows, first_tile = [], 0
    for i, entry in enumerate(entries):
        columns = dict(zip(INTEGERS, entry.integers, strict=True))
        columns["first_tile"] = first_tile
        if buffers:
            columns |= buffers[i].addresses()
        if not columns["lr"]:
            columns |= {"lr": lrs + 8 * i, "lr_is_float64": 1}
        rows.append([*columns.values()])
        first_tile += entry.num_tiles
    return rows


def _to_device(tensor: Tensor, device: torch.device) -> Tensor:
    if device.type != "cuda":
        return tensor
    if is_capturing(device):
        raise RuntimeError(
            "cannot capture this step in a CUDA graph: addresses or learning rates have changed "
            "since the last step. Step once before the capture, clear gradients with "
            "zero_grad(set_to_none=False), and make lr a tensor on the GPU"
        )
    # From pinned memory, the copy does not wait for the device.
    return tensor.pin_memory().to(device, non_blocking=True)


def is_capturing(device: torch.device) -> bool:
    """Whether a CUDA graph is being captured, so that nothing may wait for the device."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _run(table: Table, phase: Phase = Phase.WHOLE) -> None:
    import triton.language as tl

    from nero.backends.triton.kernels import advance_kernel, step_kernel

    num_tensors = len(table.rows)
    arguments = (table.rows, table.numbers, table.factors, table.seeds)
    with torch.cuda.device_of(table.rows):
        if phase != Phase.SUMS:  # sums need no noise
            advance_kernel[(-(-num_tensors // _TENSORS_PER_PROGRAM),)](
                *arguments, num_tensors, BLOCK=_TENSORS_PER_PROGRAM, **COMPILATION
            )
        for variant, tiles in table.tiles.items():
            step_kernel[(len(tiles),)](
                *arguments,
                tiles,
                DTYPE=getattr(tl, dtype_name(variant.dtype)),
                STOCHASTIC=variant.stochastic,
                AVERAGE=variant.momentum and getattr(tl, dtype_name(variant.momentum)),
                PHASE=int(phase),
                KEPT=variant.kept,
                **compilation(variant.kept),
            )


def compilation(kept: int) -> dict[str, int | bool]:
    """Return the compiler's options for a launch."""
    return {**COMPILATION, "num_warps": KEPT[kept]} if kept else COMPILATION


def _is_interpreted() -> bool:
    if "TRITON_INTERPRET" not in os.environ:
        return False  # without importing triton, for training on a CPU
    from triton import JITFunction

    from nero.backends.triton.kernels import step_kernel

    return not isinstance(step_kernel, JITFunction)
