"""Updates as rows of numbers, which Triton kernels read."""

import math
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from nero.backends.geometry import Geometry, update_geometry
from nero.backends.halves import Buffers
from nero.core.spec import COLUMNS, STATE
from nero.core.update import Update


class Kind(IntEnum):
    """How a tile walks memory."""

    ELEMENTS = 0
    SHORT = 1
    """Short rows at any address."""
    ROWS_32 = 2
    """Aligned rows that fit into a block, for 128-bit loads, as the next three kinds."""
    ROWS_64 = 3
    ROWS_256 = 4
    ROWS_1024 = 5
    LONG = 6
    """Aligned rows that may need several blocks."""
    COLUMNS = 7
    STRIDED = 8
    """Neurons in several pieces, and rows that are neither short nor aligned."""


class Phase(IntEnum):
    """The part of a step that a launch computes."""

    WHOLE = 0
    SUMS = 1
    """The Gram matrices of neurons whose fan-in is sharded."""
    ROWS = 2
    """Their new rows, from given coefficients."""


TILES = {
    Kind.ELEMENTS: (256, 1),
    Kind.SHORT: (8, 32),
    Kind.ROWS_32: (32, 32),
    Kind.ROWS_64: (16, 64),
    Kind.ROWS_256: (4, 256),
    Kind.ROWS_1024: (1, 1024),
    Kind.LONG: (1, 1024),
    Kind.COLUMNS: (32, 16),
    Kind.STRIDED: (1, 512),
}
"""Neurons per tile, and how much of their fan-in a tile processes at once.

For programs of two warps: every warp computes the coefficients, so more warps would repeat more float64
arithmetic. No branch of the kernel should need many more registers than the others, since all get the
largest number, which limits how many programs a GPU runs at a time.
"""
KEPT = {2048: 2, 4096: 4, 8192: 8, 16384: 8}
"""Lengths of longer rows that a program keeps in registers, and the number of its warps.

Each length is a launch of its own, because the number of warps belongs to a launch.
"""
_ALIGNED_ROWS = (Kind.ROWS_32, Kind.ROWS_64, Kind.ROWS_256, Kind.ROWS_1024)

INTEGERS: tuple[str, ...] = (
    *("weight", "grad", *STATE),  # addresses; 0 for absent state
    *("lr", "lr_is_float64", "first_tile", "kind", "position", "start"),
    *(*Buffers._fields, "num_neurons"),  # addresses, if the fan-in is sharded; otherwise 0
    *("fan_in", "fan_inner", "inner", "outer_stride", "fan_outer_stride", "inner_stride"),
    *(name for name, type_ in COLUMNS.items() if type_ is int),
)
"""The columns of a tensor in int64: addresses, sizes in elements, and options."""
NUMBERS: tuple[str, ...] = (
    *(name for name, type_ in COLUMNS.items() if type_ is float),
    *("log_beta", "inverse_fan_in"),
)
"""The columns of a tensor in float64."""
NUM_FACTORS = 4
"""Number of factors computed per tensor at every step."""


class Entry(NamedTuple):
    """A tensor's row before it is in a table: ``first_tile`` is 0, and so is ``lr`` if it is a number."""

    integers: tuple[int, ...]
    """In the order of `INTEGERS`."""
    numbers: tuple[float, ...]
    """In the order of `NUMBERS`."""
    num_tiles: int

    @property
    def num_neurons(self) -> int:
        """Number of neurons."""
        return self.integers[INTEGERS.index("num_neurons")]


class Walk(NamedTuple):
    """How tiles divide a tensor."""

    kind: Kind
    outer: int
    inner: int
    outer_stride: int
    inner_stride: int

    @property
    def num_tiles(self) -> int:
        """Number of tiles; a tile never spans two outer indices."""
        return self.outer * -(-self.inner // TILES[self.kind][0])


def table_entry(update: Update) -> Entry:
    """Describe an update that the kernel can walk; tables are cached by their entries."""
    weight, geometry, walk = update.weight, update_geometry(update), _walk(update)
    addresses = {"weight": weight.data_ptr(), "grad": update.grad.data_ptr()}
    assert geometry is not None
    lr, hyper = device_lr(update.lr, weight.device), update.hyper
    has_correction = hyper.norm == "rms" and hyper.beta > 0
    columns: dict[str, float] = {
        **dict.fromkeys((*STATE, *Buffers._fields), 0),
        **addresses,
        **{key: tensor.data_ptr() for key, tensor in update.state.items()},
        "lr": 0 if lr is None else lr.data_ptr(),
        "lr_is_float64": lr is not None and lr.dtype == torch.float64,
        "first_tile": 0,
        "kind": walk.kind,
        "position": update.position,
        "start": 0 if update.places is None else update.places.start,
        "num_neurons": walk.outer * walk.inner,
        "fan_in": geometry.fan_outer * geometry.fan_inner,
        "fan_inner": geometry.fan_inner,
        "inner": walk.inner,
        "outer_stride": walk.outer_stride,
        "fan_outer_stride": geometry.fan_outer_stride,
        "inner_stride": walk.inner_stride,
        **hyper.encode(),
        "log_beta": math.log(hyper.beta) if has_correction else -math.inf,
        "inverse_fan_in": 1 / max(geometry.fan_outer * geometry.fan_inner, 1),
    }
    # One NaN object for all: others would not compare equal, and make a new entry at every step.
    numbers = tuple(_NAN if columns[name] != columns[name] else columns[name] for name in NUMBERS)
    return Entry(tuple(int(columns[name]) for name in INTEGERS), numbers, walk.num_tiles)


_NAN = math.nan


@lru_cache(maxsize=4096)
def walk_of(geometry: Geometry, *, is_elements: bool, unit: int | None = 4) -> Walk | None:
    """Divide a geometry into tiles, or return ``None`` if the kernel cannot walk it.

    Args:
        geometry: the loops over memory.
        is_elements: whether every element is a neuron.
        unit: how many numbers are 16 bytes, if all of its tensors start at multiples of them.

    Example:
        >>> from nero.backends.geometry import geometry
        >>> rows, columns = geometry((10, 784), (784, 1), (1,)), geometry((10, 784), (784, 1), (0,))
        >>> walk_of(rows, is_elements=False)
        Walk(kind=<Kind.ROWS_1024: 5>, outer=1, inner=10, outer_stride=0, inner_stride=784)
        >>> walk_of(columns, is_elements=False).num_tiles  # of 32 columns
        25
    """
    g, fan_in = geometry, geometry.fan_outer * geometry.fan_inner
    if is_elements:
        is_dense = g.outer == 1 or g.outer_stride == 1
        return Walk(Kind.ELEMENTS, 1, g.outer, 0, 1) if is_dense else None
    if fan_in >= 2**31 - TILES[Kind.LONG][1]:
        return None  # The kernel counts in 32 bits.
    if g.is_rows:
        # The kernel promises the compiler that every row starts and ends at a multiple of 16 bytes.
        is_aligned = unit is not None and fan_in % unit == 0 and g.outer_stride % unit == 0
        kinds = (*_ALIGNED_ROWS, Kind.LONG) if is_aligned else (Kind.SHORT, Kind.STRIDED)
        kind = next((each for each in kinds if fan_in <= TILES[each][1]), kinds[-1])
        if kind != Kind.STRIDED:
            return Walk(kind, 1, g.outer, 0, g.outer_stride)
    kind = Kind.COLUMNS if g.fan_inner == 1 and g.inner_stride == 1 else Kind.STRIDED
    return Walk(kind, g.outer, g.inner, g.outer_stride, g.inner_stride)


def _walk(update: Update) -> Walk:
    geometry = update_geometry(update)
    assert geometry is not None
    tensors = (update.weight, update.grad, update.state.get("exp_avg", update.weight))
    is_aligned = not any(tensor.data_ptr() % 16 for tensor in tensors)
    unit = 16 // update.weight.itemsize if is_aligned else None
    walk = walk_of(geometry, is_elements=update.neurons.is_elementwise, unit=unit)
    assert walk is not None
    return walk


def kept_lengths(
    dtype: torch.dtype, *, stochastic: bool, momentum: torch.dtype | None
) -> tuple[int, ...]:
    """Return those of `KEPT` that do not spill: noise and momentum need more registers."""
    if dtype == torch.float64:
        return ()
    longest = 8192 if stochastic or momentum else 16384
    return tuple(length for length in KEPT if length <= longest)


def kept_length(update: Update, *, stochastic: bool, momentum: torch.dtype | None) -> int:
    """Return the smallest of `KEPT` that a row fits into, or 0 if a program does not keep it."""
    fan_in = update.neurons.fan_in
    if fan_in <= TILES[Kind.LONG][1] or _walk(update).kind != Kind.LONG:
        return 0
    lengths = kept_lengths(update.weight.dtype, stochastic=stochastic, momentum=momentum)
    return min((length for length in lengths if fan_in <= length), default=0)


def device_lr(lr: float | Tensor, device: torch.device) -> Tensor | None:
    """Return ``lr`` if it is a tensor that kernels on ``device`` can read."""
    if (
        isinstance(lr, Tensor)
        and lr.device == device
        and lr.dtype in (torch.float32, torch.float64)
    ):
        return lr
    return None
