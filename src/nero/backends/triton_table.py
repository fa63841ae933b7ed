"""A task as a row of numbers, the form in which Triton kernels read it."""

import math
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from nero.backends.geometry import Geometry, task_geometry
from nero.backends.task import NeroTask


class Kind(IntEnum):
    """How a tile walks memory."""

    ELEMENTS = 0
    SHORT = 1
    """Rows, as the next three: these fit into a block."""
    MIDDLE = 2
    WIDE = 3
    """From here on aligned, so that loads of 128 bits are possible."""
    LONG = 4
    """These may need several blocks."""
    COLUMNS = 5
    STRIDED = 6
    """Neurons in several pieces, and rows that are neither short nor aligned."""


TILES = {
    Kind.ELEMENTS: (512, 1),
    Kind.SHORT: (8, 32),
    Kind.MIDDLE: (2, 256),
    Kind.WIDE: (1, 1024),
    Kind.LONG: (1, 2048),
    Kind.COLUMNS: (32, 32),
    Kind.STRIDED: (1, 1024),
}
"""Neurons of a tile, and how much of their fan-in it holds at once.

Chosen so that no branch of the kernel takes many more registers than the others: all share the largest
number, and it limits how many programs a GPU runs at a time.
"""


class Row(NamedTuple):
    """What a kernel must know of a tensor, in int64: addresses, then sizes in elements and flags."""

    weight: int
    grad: int
    avg_norm: int
    step: int
    num_skipped: int
    scale: int
    radius: int
    lr: int
    lr_is_float64: int
    first_tile: int
    kind: int
    fan_in: int
    fan_inner: int
    inner: int
    outer_stride: int
    fan_outer_stride: int
    inner_stride: int
    centre: int
    has_target: int
    propagate: int
    seed: int
    stream: int


class Numbers(NamedTuple):
    """What it must know in float64."""

    beta: float
    log_beta: float
    target: float
    zero_norm: float
    gain_penalty: float
    sign: float


class Entry(NamedTuple):
    """A tensor before it has a place in a table: an absent address is 0, and so is ``first_tile``."""

    row: Row
    numbers: Numbers
    num_tiles: int


class Walk(NamedTuple):
    """How tiles divide a tensor."""

    kind: Kind
    outer: int
    inner: int
    outer_stride: int
    inner_stride: int

    @property
    def num_tiles(self) -> int:
        """Number of tiles; none holds neurons of two outer indices."""
        return self.outer * -(-self.inner // TILES[self.kind][0])


def table_entry(task: NeroTask) -> Entry:
    """Describe a task that has a walk.

    Two tasks with equal entries are the same work, so entries are what a table is cached by.
    """
    weight, options, geometry = task.weight, task.options, task_geometry(task)
    addresses = weight.data_ptr(), task.grad.data_ptr()
    assert geometry is not None
    is_aligned = not any(address % 16 for address in addresses)
    walk = walk_of(geometry, is_elements=task.scale is not None, is_aligned=is_aligned)
    assert walk is not None
    lr = device_lr(options.lr, weight.device)
    radius = task.constraint.radius
    row = Row(
        weight=addresses[0],
        grad=addresses[1],
        avg_norm=task.avg_norm.data_ptr(),
        step=task.step.data_ptr(),
        num_skipped=task.num_skipped.data_ptr(),
        scale=_address(task.scale),
        radius=_address(task.radius) if radius == "initial" else 0,
        lr=_address(lr),
        lr_is_float64=lr is not None and lr.dtype == torch.float64,
        first_tile=0,
        kind=walk.kind,
        fan_in=geometry.fan_outer * geometry.fan_inner,
        fan_inner=geometry.fan_inner,
        inner=walk.inner,
        outer_stride=walk.outer_stride,
        fan_outer_stride=geometry.fan_outer_stride,
        inner_stride=walk.inner_stride,
        centre=task.constraint.centre,
        has_target=radius is not None,
        propagate=options.nonfinite == "propagate",
        seed=options.seed,
        stream=task.stream,
    )
    numbers = Numbers(
        beta=options.beta,
        log_beta=math.log(options.beta) if options.beta > 0 else -math.inf,
        target=radius if isinstance(radius, int | float) else 0.0,
        zero_norm=options.bias_scale,
        gain_penalty=options.gain_penalty,
        sign=-1.0 if options.maximize else 1.0,
    )
    return Entry(row, numbers, walk.num_tiles)


@lru_cache(maxsize=4096)
def walk_of(geometry: Geometry, *, is_elements: bool, is_aligned: bool = True) -> Walk | None:
    """Divide a geometry into tiles, or return ``None`` if the kernel cannot walk it.

    Args:
        geometry: the loops over memory.
        is_elements: whether every element is a neuron of its own.
        is_aligned: whether weight and gradient start at multiples of 16 bytes.

    Example:
        >>> from nero.backends.geometry import geometry
        >>> rows, columns = geometry((10, 784), (784, 1), (1,)), geometry((10, 784), (784, 1), (0,))
        >>> walk_of(rows, is_elements=False)
        Walk(kind=<Kind.WIDE: 3>, outer=1, inner=10, outer_stride=0, inner_stride=784)
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
        # The kernel promises the compiler multiples of 16 elements, too.
        is_aligned = is_aligned and fan_in % 16 == 0 and g.outer_stride % 16 == 0
        fits = (kind for kind in (Kind.SHORT, Kind.MIDDLE, Kind.WIDE) if fan_in <= TILES[kind][1])
        kind = next(fits, Kind.LONG)
        if kind < Kind.WIDE or is_aligned:
            return Walk(kind, 1, g.outer, 0, g.outer_stride)
    kind = Kind.COLUMNS if g.fan_inner == 1 and g.inner_stride == 1 else Kind.STRIDED
    return Walk(kind, g.outer, g.inner, g.outer_stride, g.inner_stride)


def device_lr(lr: float | Tensor, device: torch.device) -> Tensor | None:
    """Return ``lr`` if kernels on ``device`` can read it themselves."""
    if (
        isinstance(lr, Tensor)
        and lr.device == device
        and lr.dtype in (torch.float32, torch.float64)
    ):
        return lr
    return None


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
