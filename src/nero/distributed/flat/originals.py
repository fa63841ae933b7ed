"""The whole parameters that an optimizer was built on, from which engines make flat buffers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from nero.core.neurons import Neurons
from nero.distributed.flat.boxes import Piece
from nero.distributed.flat.plan import Ranges

State = Mapping[str, Tensor]


class Original(NamedTuple):
    """A whole parameter."""

    name: str
    param: Tensor
    shape: tuple[int, ...]
    neurons: Neurons
    position: int
    """Its position among the optimizer's parameters."""
    state: State
    """Its optimizer state before it was flattened."""

    def piece(self, offset: int = 0, start: int = 0, stop: int = 0) -> Piece:
        """Return this rank's piece of it; empty by default."""
        return Piece(self.name, self.shape, self.neurons, self.position, offset, start, stop)


class Found(NamedTuple):
    """An engine's description of one flat buffer: a piece of each original, and the process group."""

    originals: Sequence[Original]
    ranges: Ranges
    group: Any


Engine = Callable[[Tensor, Sequence[Original]], Found | None]
"""Locates parameters in a buffer; returns ``None`` if the buffer is not this engine's."""
