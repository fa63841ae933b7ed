"""What a kernel keeps between the halves of a step, for neurons that ranks share."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nero.core.gram import gram_keys
from nero.core.rule import Turn


class Buffers(NamedTuple):
    """Between summing and writing: what ranks add up, and what follows from it, per neuron."""

    gram: Tensor
    turns: Tensor
    moves: Tensor
    written: Tensor

    @classmethod
    def new(cls, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> "Buffers":
        """Return buffers for neurons in this shape, with coefficients of this dtype."""
        return cls(
            torch.empty((len(gram_keys("wg")), *shape), dtype=torch.float64, device=device),
            torch.empty((3, *shape), dtype=dtype, device=device),
            torch.empty(shape, dtype=torch.bool, device=device),
            torch.empty(shape, dtype=torch.bool, device=device),
        )

    def set(self, turn: Turn) -> None:
        """Write the coefficients, which may be in another shape."""
        shape = self.moves.shape
        rows = (*turn.weight.coefficients, turn.weight.shift)
        torch.stack([row.reshape(shape) for row in rows], out=self.turns)
        self.moves.copy_(turn.moves.reshape(shape))
        self.written.copy_(turn.is_written.reshape(shape))

    def addresses(self) -> dict[str, int]:
        """Return where each of them lies, by name."""
        return {name: buffer.data_ptr() for name, buffer in self._asdict().items()}
