"""The GPU backend: one Triton launch for all neurons of the model.

The kernel walks a table of addresses, so that a step costs two launches however many tensors there are: one
advances the step counters, one updates. Tensors of another dtype, device or rounding form launches of their
own, and so do those with momentum. ``lr`` and ``step`` are read on the device: nothing waits for it, and
once the table is built, the step can be captured in a CUDA graph. Sums are float64, as everywhere in this
package. What the kernel cannot walk goes to the plain backend, tensor by tensor; `why_not` says what and
why.

Note:
    This code has been run in Triton's interpreter, where tests hold it to the plain backend, and has been
    compiled for sm_80, sm_90 and gfx942. It has not been run on a GPU, and so not timed on one.
"""

import os
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from nero.backends import plain
from nero.backends.geometry import scatters_noise, update_geometry
from nero.backends.triton.table import INTEGERS, Entry, device_lr, table_entry, walk_of
from nero.core.precision import working_dtype
from nero.core.update import Update

_TENSORS_PER_PROGRAM = 128  # of the launch that advances the steps
_COMPILATION = {"num_warps": 4, "enable_fp_fusion": False}  # fused or not, memory is what limits
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class _Launch(NamedTuple):
    """What all tensors of one launch share."""

    device: torch.device
    dtype: torch.dtype
    stochastic: bool
    momentum: bool


def step_(updates: Sequence[Update]) -> None:
    """Update, in place, the weights and state of every parameter; gradients are only read.

    Note:
        While addresses stay the same, nothing is copied to the device but an ``lr`` that is a changed
        number. In a CUDA graph addresses must stay: step once before the capture, and clear gradients with
        ``zero_grad(set_to_none=False)``.

    Raises:
        RuntimeError: if a copy is needed while a CUDA graph is being captured.
    """
    launches: dict[_Launch, list[Update]] = {}
    others = []
    for update in updates:
        if why_not(update) is None:
            stochastic = update.hyper.stochastic_rounding and update.weight.dtype.itemsize == 2
            has_momentum = "exp_avg" in update.state
            launch = _Launch(update.weight.device, update.weight.dtype, stochastic, has_momentum)
            launches.setdefault(launch, []).append(update)
        else:
            others.append(update)
    plain.step_(others)
    for launch, members in launches.items():
        table = _table(tuple(table_entry(update) for update in members), launch.device)
        table.set_lr([update.lr for update in members])
        _run(table, launch)
        # Autograd must see that weights have changed, although no torch operation changed them.
        increment_version([update.weight for update in members])


def why_not(update: Update) -> str | None:
    """Return why an update cannot take this backend, or ``None`` if it can: "on the CPU", "memory order".

    Triton's interpreter, switched on by ``TRITON_INTERPRET=1``, takes the CPU.
    """
    weight, grad, lr = update.weight, update.grad, update.lr
    average = update.state["exp_avg_norm"]
    subclasses = [type(x) for x in (weight, grad) if type(x) not in (Tensor, nn.Parameter)]
    if subclasses:
        return f"tensor subclass {subclasses[0].__name__}"
    reason = why_not_device(weight.device)
    if reason is not None:
        return reason
    if weight.dtype not in _DTYPES or grad.dtype != weight.dtype:
        return f"weights of {weight.dtype} with gradients of {grad.dtype}"
    if average.dtype != working_dtype(weight.dtype):
        return f"state of {average.dtype} for weights of {weight.dtype}"
    if isinstance(lr, Tensor) and lr.device.type != "cpu" and device_lr(lr, weight.device) is None:
        return f"lr of {lr.dtype} on {lr.device}"
    return _why_not_memory(update)


@lru_cache(maxsize=64)
def why_not_device(device: torch.device) -> str | None:
    """Return why no tensor on ``device`` can take this backend, or ``None``."""
    if find_spec("triton") is None:
        return "triton is not installed"
    if device.type == "cuda":
        is_old = torch.version.hip is None and torch.cuda.get_device_capability(device) < (7, 0)
        return "a GPU older than Volta" if is_old else None
    if device.type == "cpu":
        return None if _is_interpreted() else "on the CPU"
    return f"on the device {device.type}"


def _why_not_memory(update: Update) -> str | None:
    geometry, num_neurons = update_geometry(update), update.state["exp_avg_norm"].numel()
    if update.weight.numel() == 0:
        return "empty"
    is_elements = update.neurons.is_elementwise
    walk = None if geometry is None else walk_of(geometry, is_elements=is_elements)
    # The count guards against gaps between neurons that four loops cannot describe.
    if geometry is None or walk is None or geometry.outer * geometry.inner != num_neurons:
        return "memory order"
    # That of the average of the gradient is the weight's: see update_geometry.
    rest = [tensor for key, tensor in update.state.items() if key != "exp_avg"]
    if not all(tensor.is_contiguous() for tensor in rest):
        return "memory order of the state"
    if scatters_noise(update):
        return "memory order: stochastic rounding counts positions"
    return None


class _Table:
    """The columns of all tensors on the device, beside the learning rates that come from the host."""

    def __init__(self, entries: Sequence[Entry], device: torch.device) -> None:
        self._lr_values: list[float] | None = None
        self._lrs = torch.zeros(len(entries), dtype=torch.float64, device=device)
        counts = torch.tensor([entry.num_tiles for entry in entries])
        tensors = torch.arange(len(entries), dtype=torch.int32)
        self.tiles = _to_device(tensors.repeat_interleave(counts), device)
        """The tensor of every tile."""
        numbers = torch.tensor([entry.numbers for entry in entries], dtype=torch.float64)
        self.numbers = _to_device(numbers, device)
        rows = torch.tensor(_placed(entries, lrs=self._lrs.data_ptr()), dtype=torch.int64)
        self.rows = _to_device(rows, device)
        self.factors = torch.zeros(len(entries), 2, dtype=torch.float64, device=device)
        """lr and 1 - beta^t, and then seeds: written and read by every step."""
        self.seeds = torch.zeros(len(entries), dtype=torch.int64, device=device)

    def set_lr(self, lrs: Sequence[float | Tensor]) -> None:
        """Bring to the device what it cannot read where it is."""
        device = self.rows.device
        values = [float(lr) if device_lr(lr, device) is None else 0.0 for lr in lrs]
        if values != self._lr_values:
            self._lrs.copy_(_to_device(torch.tensor(values, dtype=torch.float64), device))
            self._lr_values = values


@lru_cache(maxsize=32)
def _table(entries: tuple[Entry, ...], device: torch.device) -> _Table:
    return _Table(entries, device)


def _placed(entries: Sequence[Entry], *, lrs: int) -> list[list[int]]:
    rows, first_tile = [], 0
    for i, entry in enumerate(entries):
        columns = dict(zip(INTEGERS, entry.integers, strict=True))
        columns["first_tile"] = first_tile
        if not columns["lr"]:
            columns |= {"lr": lrs + 8 * i, "lr_is_float64": 1}
        rows.append([*columns.values()])
        first_tile += entry.num_tiles
    return rows


def _to_device(tensor: Tensor, device: torch.device) -> Tensor:
    if device.type != "cuda":
        return tensor
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "a CUDA graph is being captured, but since the last step addresses or learning rates have "
            "changed: step once before the capture, clear gradients with zero_grad(set_to_none=False), "
            "and make lr a tensor on the GPU"
        )
    # Out of pinned memory, the copy does not wait for the device.
    return tensor.pin_memory().to(device, non_blocking=True)


# A graph reads its table at every replay, and holds no reference to it.
_captured: list[_Table] = []


def _run(table: _Table, launch: _Launch) -> None:
    import triton.language as tl

    from nero.backends.triton.kernels import advance_kernel, step_kernel

    if launch.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        _captured.append(table)
    num_tensors = len(table.rows)
    shared = (table.rows, table.numbers, table.factors, table.seeds)
    with torch.cuda.device_of(table.rows):
        advance_kernel[(-(-num_tensors // _TENSORS_PER_PROGRAM),)](
            *shared, num_tensors, BLOCK=_TENSORS_PER_PROGRAM, **_COMPILATION
        )
        step_kernel[(len(table.tiles),)](
            *shared,
            table.tiles,
            DTYPE=getattr(tl, str(launch.dtype).removeprefix("torch.")),
            STOCHASTIC=launch.stochastic,
            HAS_MOMENTUM=launch.momentum,
            **_COMPILATION,
        )


def _is_interpreted() -> bool:
    if "TRITON_INTERPRET" not in os.environ:
        return False  # and whoever trains on a CPU need not wait for the import
    from triton import JITFunction

    from nero.backends.triton.kernels import step_kernel

    return not isinstance(step_kernel, JITFunction)
