"""Norms of whole layers, for optimisers that go by layer."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nero.core.relative import sum_of_squares
from nero.distributed.collectives import MeshDim, all_reduce_flat


class SharedNorms:
    """Norms of whole layers of which this rank holds a part, all added up at once.

    A rule is gone through twice. At first it says what it needs the norms of, and is answered with ones;
    then it gets the norms, in the same order.
    """

    def __init__(self) -> None:
        self._squares: list[Tensor] = []
        self._where: list[Sequence[MeshDim]] = []

    def asked_for(self, reduce_over: Sequence[MeshDim]) -> Callable[[Tensor], Tensor]:
        """Return what notes the norms that the rule of a parameter asks for."""

        def note(x: Tensor) -> Tensor:
            self._squares.append(sum_of_squares(x).reshape(1))
            self._where.append(reduce_over)
            return torch.ones((), dtype=x.dtype, device=x.device)

        return note

    def answers(self) -> Callable[[Tensor], Tensor]:
        """Add everything up, and return what answers with the norms, one after the other."""
        summed = iter(all_reduce_flat(self._squares, self._where))
        return lambda x: next(summed).reshape(()).sqrt().to(x.dtype)
