"""Norms of whole layers, for optimisers that go by layer."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from nero.distributed.add_up import MeshDim, add_up
from nero.distributed.shards import sharded_dim
from nero.functional.relative import sum_of_squares


class SharedNorms:
    """Norms of whole layers of which this rank holds a part, all added up at once.

    A rule is gone through twice. At first it says what it needs the norms of, and is answered with ones;
    then it gets the norms, in the same order.
    """

    def __init__(self) -> None:
        self._squares: list[Tensor] = []
        self._where: list[list[MeshDim]] = []

    def asked_for(self, param: Tensor) -> Callable[[Tensor], Tensor]:
        """Return what notes the norms that the rule of a parameter asks for."""
        where: list[MeshDim] = []
        if isinstance(param, DTensor):
            mesh, placements = param.device_mesh, param.placements
            dims = [sharded_dim(placement, param.ndim) for placement in placements]
            where = [(mesh, mesh_dim) for mesh_dim, dim in enumerate(dims) if dim is not None]

        def note(x: Tensor) -> Tensor:
            self._squares.append(sum_of_squares(x).reshape(1))
            self._where.append(where)
            return torch.ones((), dtype=x.dtype, device=x.device)

        return note

    def answers(self) -> Callable[[Tensor], Tensor]:
        """Add everything up, and return what answers with the norms, one after the other."""
        summed = iter(add_up(self._squares, self._where))
        return lambda x: next(summed).reshape(()).sqrt().to(x.dtype)
