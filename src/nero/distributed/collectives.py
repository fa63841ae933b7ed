"""The one communication of a step: sums of all parameters, in one all-reduce per process group."""

from collections.abc import Sequence
from typing import TypeAlias

import torch
import torch.distributed._functional_collectives as funcol
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

MeshDim: TypeAlias = tuple[DeviceMesh, int]


def all_reduce(tensor: Tensor, mesh: DeviceMesh, mesh_dim: int) -> Tensor:
    """Add up a tensor over one dim of a mesh, in a way that compilers and torch's debug mode see."""
    summed: Tensor = funcol.wait_tensor(funcol.all_reduce(tensor, "sum", (mesh, mesh_dim)))
    return summed


def all_reduce_flat(buffers: Sequence[Tensor], where: Sequence[Sequence[MeshDim]]) -> list[Tensor]:
    """Add up flat buffers, each over some dims of some mesh; all ranks bring the same, in the same order.

    Buffers travel together by the name of the process group, because every ``fully_shard`` call builds a
    mesh of its own.
    """
    summed = [*buffers]
    members: dict[str, list[int]] = {}
    places: dict[str, MeshDim] = {}
    for index, mesh_dims in enumerate(where):
        for mesh, mesh_dim in mesh_dims:
            name = str(mesh.get_group(mesh_dim).group_name)
            members.setdefault(name, []).append(index)
            places.setdefault(name, (mesh, mesh_dim))
    for name, indices in members.items():
        flat = all_reduce(torch.cat([summed[i] for i in indices]), *places[name])
        parts = flat.split([summed[i].numel() for i in indices])
        for i, part in zip(indices, parts, strict=True):
            summed[i] = part
    return summed
