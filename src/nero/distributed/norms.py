"""Norms of sharded layers, for layerwise optimizers."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nero.core.relative import LayerNorm, sum_of_squares
from nero.core.update import Update
from nero.distributed.collectives import MeshDim, all_reduce_flat


class SharedNorms:
    """Norms of sharded layers, all reduced at once.

    The update of each layer runs twice: first with `recorder`, which collects the sums of squares and
    returns ones, then with `reduced`, which returns the norms in the same order. The number of ranks on
    which a layer has a gradient is reduced with each norm: all ranks pass the same layers, with a gradient
    or without.
    """

    def __init__(self) -> None:
        self._pairs: list[Tensor] = []
        self._where: list[Sequence[MeshDim]] = []
        self.num_with_grad: float | Tensor = 0
        """The number of ranks with a gradient of the layer whose norm was returned last."""

    def recorder(self, update: Update) -> LayerNorm:
        """Return a norm that records its argument, and returns one."""

        def record(x: Tensor) -> Tensor:
            square = sum_of_squares(x)
            self._pairs.append(torch.stack([square, torch.full_like(square, update.has_grad)]))
            self._where.append(update.reduce_over)
            return torch.ones((), dtype=x.dtype, device=x.device)

        return record

    def reduced(self) -> LayerNorm:
        """All-reduce the recorded sums, and return a norm that returns them one after the other."""
        summed = iter(all_reduce_flat(self._pairs, self._where))

        def norm(x: Tensor) -> Tensor:
            pair = next(summed)
            self.num_with_grad = pair[1]
            return pair[0].sqrt().to(x.dtype)

        return norm
