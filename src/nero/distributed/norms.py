"""Norms of whole layers, for optimizers that go by layer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nero.core.relative import LayerNorm, sum_of_squares
from nero.core.update import Update
from nero.distributed.collectives import MeshDim, all_reduce_flat


class SharedNorms:
    """Norms of whole layers of which this rank holds a part, all added up at once.

    A rule is gone through twice. At first it says what it needs the norms of, and is answered with ones;
    then it gets the norms, in the same order. With each norm travels on how many ranks the layer has a
    gradient: all ranks bring the same layers, with a gradient or without.
    """

    def __init__(self) -> None:
        self._pairs: list[Tensor] = []
        self._where: list[Sequence[MeshDim]] = []
        self.num_with_grad: float | Tensor = 0
        """Of the layer whose norm was answered last: on how many ranks it has a gradient."""

    def asked_for(self, update: Update) -> LayerNorm:
        """Return what notes the norms that the rule of a parameter asks for."""

        def note(x: Tensor) -> Tensor:
            square = sum_of_squares(x)
            self._pairs.append(torch.stack([square, torch.full_like(square, update.has_grad)]))
            self._where.append(update.reduce_over)
            return torch.ones((), dtype=x.dtype, device=x.device)

        return note

    def answers(self) -> LayerNorm:
        """Add everything up, and return what answers with the norms, one after the other."""
        summed = iter(all_reduce_flat(self._pairs, self._where))

        def answer(x: Tensor) -> Tensor:
            pair = next(summed)
            self.num_with_grad = pair[1]
            return pair[0].sqrt().to(x.dtype)

        return answer
