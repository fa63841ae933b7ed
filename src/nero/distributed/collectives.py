"""All-reduces: sums for all parameters at once, or one number that ranks must agree on."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import torch
import torch.distributed._functional_collectives as funcol
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

MeshDim: TypeAlias = tuple[DeviceMesh, int]


def all_reduce(tensor: Tensor, mesh: DeviceMesh, mesh_dim: int, op: str = "sum") -> Tensor:
    """All-reduce a tensor over a mesh dim, visibly to torch.compile and CommDebugMode."""
    reduced: Tensor = funcol.wait_tensor(funcol.all_reduce(tensor, op, (mesh, mesh_dim)))
    return reduced


def all_reduce_flat(buffers: Sequence[Tensor], where: Sequence[Sequence[MeshDim]]) -> list[Tensor]:
    """Sum flat buffers, each over its mesh dims; all ranks pass the same ones in the same order.

    Buffers are grouped by the process group's name, because every ``fully_shard`` call builds its own mesh.
    """
    summed = [*buffers]
    members: dict[str, list[int]] = {}
    groups: dict[str, MeshDim] = {}
    for index, mesh_dims in enumerate(where):
        for mesh, mesh_dim in mesh_dims:
            name = str(mesh.get_group(mesh_dim).group_name)
            members.setdefault(name, []).append(index)
            groups.setdefault(name, (mesh, mesh_dim))
    for name, indices in members.items():
        flat = all_reduce(torch.cat([summed[i] for i in indices]), *groups[name])
        parts = flat.split([summed[i].numel() for i in indices])
        for i, part in zip(indices, parts, strict=True):
            summed[i] = part
    return summed


def lowest_on_any_rank(number: int, meshes: Iterable[DeviceMesh]) -> int:
    """Return the lowest number on any rank of some meshes; all ranks must call this.

    Reduces over every dim of every mesh, including replicas, without assumptions about what ranks hold.
    After one reduction per dim, all ranks of a mesh have the same number. Waits for the device.
    """
    lowest = torch.tensor(number)
    done = set()
    for mesh in dict.fromkeys(meshes):
        for mesh_dim in range(mesh.ndim):
            name = str(mesh.get_group(mesh_dim).group_name)
            if mesh.size(mesh_dim) > 1 and name not in done:
                done.add(name)
                lowest = all_reduce(lowest.to(mesh.device_type), mesh, mesh_dim, "min")
    return int(lowest)


def all_reduce_over(tensor: Tensor, group: Any) -> Tensor:
    """Sum a tensor over a process group, visibly to CommDebugMode."""
    reduced: Tensor = funcol.wait_tensor(funcol.all_reduce(tensor, "sum", group))
    return reduced
