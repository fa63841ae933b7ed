"""What ranks send each other: sums of all parameters, or one number that they must agree on.

One all-reduce per process group, whatever the number of parameters.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import torch
import torch.distributed._functional_collectives as funcol
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

MeshDim: TypeAlias = tuple[DeviceMesh, int]


def all_reduce(tensor: Tensor, mesh: DeviceMesh, mesh_dim: int, op: str = "sum") -> Tensor:
    """Add up a tensor over one dim of a mesh, in a way that compilers and torch's debug mode see."""
    reduced: Tensor = funcol.wait_tensor(funcol.all_reduce(tensor, op, (mesh, mesh_dim)))
    return reduced


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


def lowest_on_any_rank(number: int, meshes: Iterable[DeviceMesh]) -> int:
    """Return the lowest of the numbers that the ranks of some meshes bring; all of them must call this.

    It goes over every dim of every mesh, those of replicas too, so that nothing is assumed of what ranks
    hold. Dims cross like the rows and columns of a grid: after each has been reduced once, all ranks of
    the grid have the same number. Waits for the device.
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
