"""Buffers between the two halves of a step, for neurons whose fan-in is sharded."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nero.core.gram import gram_keys
from nero.core.rule import Turn


class Buffers(NamedTuple):
    """Per-neuron sums that ranks reduce, and the coefficients that follow from them."""

    gram: Tensor
    turns: Tensor
    moves: Tensor
    written: Tensor

    @classmethod
    def new(cls, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> "Buffers":
        """Allocate buffers for neurons of this shape, with coefficients of this dtype."""
        return cls(
            torch.empty((len(gram_keys("wg")), *shape), dtype=torch.float64, device=device),
            torch.empty((3, *shape), dtype=dtype, device=device),
            torch.empty(shape, dtype=torch.bool, device=device),
            torch.empty(shape, dtype=torch.bool, device=device),
        )

    def set(self, turn: Turn) -> None:
        """Write the coefficients, reshaped to fit the buffers."""
        shape = self.moves.shape
        coefficients = (*turn.weight.coefficients, turn.weight.shift)
        torch.stack([tensor.reshape(shape) for tensor in coefficients], out=self.turns)
        self.moves.copy_(turn.moves.reshape(shape))
        self.written.copy_(turn.is_written.reshape(shape))

    def addresses(self) -> dict[str, int]:
        """Return the buffers' addresses by name."""
        return {name: buffer.data_ptr() for name, buffer in self._asdict().items()}
