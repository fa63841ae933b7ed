"""How a contiguous range of a flattened parameter divides into neurons.

A range of a row-major tensor is a few boxes, each contiguous in memory: for a matrix the end of a row, some
whole rows, and the beginning of a row. A box that spans all fan-in dims holds whole neurons and is an
ordinary tensor with an ordinary layout. Any other box holds parts of neurons.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from nero.core.neurons import Neurons

Shape = tuple[int, ...]


class Piece(NamedTuple):
    """A piece of one parameter on this rank: elements ``start`` to ``stop``, at ``offset`` in a buffer."""

    name: str
    shape: Shape
    neurons: Neurons
    """The neurons of the full parameter."""
    position: int
    """Its position among the optimizer's parameters; it selects the noise stream."""
    offset: int = 0
    start: int = 0
    stop: int = 0

    @property
    def numel(self) -> int:
        """The number of elements of the full parameter."""
        return math.prod(self.shape)


class Form(NamedTuple):
    """A parameter's dims, with neighbours of one kind merged and those of size one left out.

    A *block* is the smallest run of consecutive elements that holds whole neurons: a row, a group of a
    transposed convolution, an expert, or the whole matrix if a fan-in dim comes first.
    """

    sizes: Shape
    fan_in_dims: Shape
    merged: tuple[Shape, ...]
    """The sizes that were merged into each dim."""

    @property
    def lead(self) -> int:
        """The number of dims that index blocks."""
        return min(self.fan_in_dims, default=len(self.sizes))

    @property
    def block(self) -> int:
        """The number of elements per block."""
        return math.prod(self.sizes[self.lead :])

    @property
    def kept(self) -> Shape:
        """The shape of one number per neuron of a block."""
        dims = range(self.lead, len(self.sizes))
        return tuple(self.sizes[d] for d in dims if d not in self.fan_in_dims)

    @property
    def num_kept(self) -> int:
        """The number of neurons per block."""
        return math.prod(self.kept)


def form_of(shape: Shape, neurons: Neurons) -> Form:
    """Return the form of a parameter.

    Example:
        >>> from nero.distributed.flat.boxes import form_of
        >>> from nero.layout import neurons
        >>> form_of((8, 4, 3), neurons(0).at((8, 4, 3))).sizes  # a Conv1d
        (8, 12)
        >>> form_of((8, 4, 3), neurons(1).at((8, 4, 3))).block  # a ConvTranspose1d
        96
    """
    if neurons.is_elementwise:
        numel = math.prod(shape)
        return Form((numel,), (), ((numel,),))
    view = neurons.view(torch.empty(shape, device="meta")).shape
    groups: list[tuple[bool, list[int]]] = []
    for d, size in enumerate(view):
        if size == 1:
            continue
        is_fan_in = d in neurons.fan_in_dims
        if groups and groups[-1][0] == is_fan_in:
            groups[-1][1].append(size)
        else:
            groups.append((is_fan_in, [size]))
    return Form(
        tuple(math.prod(sizes) for _, sizes in groups),
        tuple(d for d, (is_fan_in, _) in enumerate(groups) if is_fan_in),
        tuple(tuple(sizes) for _, sizes in groups),
    )


class Box(NamedTuple):
    """Consecutive elements of a parameter that form a box of its dims."""

    first: int
    """The first element in the buffer."""
    origin: Shape
    """The index of the first element in the form."""
    sizes: Shape

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.sizes)

    def is_whole(self, form: Form) -> bool:
        """Whether it holds whole neurons."""
        return all(self.sizes[d] == form.sizes[d] for d in form.fan_in_dims)

    def block(self, form: Form) -> int:
        """Return the index of the first block that it lies in."""
        index = 0
        for place, size in zip(self.origin[: form.lead], form.sizes[: form.lead], strict=True):
            index = index * size + place
        return index

    def kept(self, form: Form) -> tuple[slice, ...]:
        """Return which neurons of its block it has parts of."""
        dims = [d for d in range(form.lead, len(form.sizes)) if d not in form.fan_in_dims]
        return tuple(slice(self.origin[d], self.origin[d] + self.sizes[d]) for d in dims)

    def view(self, form: Form) -> tuple[Shape, Shape]:
        """Return the shape used in its step, and the fan-in dims.

        Whole neurons keep their parameter's dims, so that sums run in the same order as in an unsharded
        step.
        """
        if not self.is_whole(form):
            return self.sizes, form.fan_in_dims
        shape: list[int] = []
        dims: list[int] = []
        for d, size in enumerate(self.sizes):
            parts = form.merged[d] if size == form.sizes[d] else (size,)
            if d in form.fan_in_dims:
                dims += range(len(shape), len(shape) + len(parts))
            shape += parts
        return tuple(shape), tuple(dims)


def boxes_of(form: Form, start: int, stop: int, offset: int = 0) -> list[Box]:
    """Divide elements ``start`` to ``stop`` of a parameter into boxes, in their order in memory.

    Example:
        >>> from nero.distributed.flat.boxes import boxes_of, form_of
        >>> from nero.layout import neurons
        >>> form = form_of((5, 4), neurons(0).at((5, 4)))
        >>> [(box.origin, box.sizes) for box in boxes_of(form, 2, 13)]
        [((0, 2), (1, 2)), ((1, 0), (2, 4)), ((3, 0), (1, 1))]
    """
    boxes = []
    for origin, sizes in _divided(form.sizes, start, stop):
        boxes.append(Box(offset, origin, sizes))
        offset += math.prod(sizes)
    return boxes


def _divided(sizes: Shape, start: int, stop: int) -> Iterator[tuple[Shape, Shape]]:
    if start >= stop:
        return
    if not sizes:
        yield (), ()
        return
    inner = math.prod(sizes[1:])
    (i, skipped), (j, rest) = divmod(start, inner), divmod(stop, inner)
    if skipped:
        end = rest if i == j else inner
        for origin, size in _divided(sizes[1:], skipped, end):
            yield (i, *origin), (1, *size)
        if i == j:
            return
        i += 1
    if i < j:
        yield (i, *[0] * (len(sizes) - 1)), (j - i, *sizes[1:])
    for origin, size in _divided(sizes[1:], 0, rest):
        yield (j, *origin), (1, *size)
