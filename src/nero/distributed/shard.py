"""A sharded parameter, as this rank holds it."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from nero.core.held import Held, project_blocks_
from nero.core.neurons import Neurons
from nero.core.sharding import to_local
from nero.core.sphere import Sphere, project
from nero.core.update import Places
from nero.distributed.owners import cutting_shardings
from nero.distributed.placement import (
    check_placements,
    fan_in_mesh_dims,
    local_pair,
    per_neuron,
    places_of,
    sharded_mesh_dims,
    sharded_neuron_norm,
)


class Shard(Held):
    """A parameter that is a DTensor, from FSDP2, tensor parallelism or both."""

    param: DTensor

    def __init__(self, param: Tensor, neurons: Neurons) -> None:
        super().__init__(param, neurons)
        self.is_cut = bool(cutting_shardings(param, neurons))
        self.mesh = self.param.device_mesh
        self.layer_mesh_dims: tuple[Any, ...] = sharded_mesh_dims(param)
        self.neuron_mesh_dims: tuple[Any, ...] = fan_in_mesh_dims(param, neurons)

    @property
    def local(self) -> Tensor:
        """The tensor on this rank."""
        return self.param.to_local()

    def local_grad(self, name: str) -> Tensor | None:
        """Return this rank's part of the gradient, with the parameter's placements; may communicate."""
        grad = self.param.grad
        return None if grad is None else local_pair(self.param, grad, name)[1]

    def check(self, name: str) -> None:
        """Raise if the parameter's placements are not supported."""
        check_placements(self.param, self.neurons, name)

    def places(self) -> Places:
        """Return the position of this rank's shard in the full parameter."""
        return places_of(self.param, self.neurons)

    def zeros_per_neuron(self, dtype: torch.dtype) -> Tensor:
        """Return one zero per neuron, sharded as the neurons are."""
        return per_neuron(self.param, self.neurons, dtype=dtype, device=self.param.device)

    def neuron_norms(self) -> Tensor:
        """Return the norm of each neuron's finite weights, sharded as the neurons are."""
        return sharded_neuron_norm(self.param, self.neurons)

    def project_(self, constraint: Sphere, radius: Tensor | None = None) -> None:
        """Project every neuron in place; communicates if the fan-in is sharded."""
        if not self.neuron_mesh_dims:
            radius = None if radius is None else to_local(radius)
            project_blocks_(self.local, self.neurons, constraint, radius)
            return
        weight: Any = self.neurons.view(self.param)
        dims = self.neurons.fan_in_dims
        projected: Any = project(weight, fan_in_dims=dims, constraint=constraint, radius=radius)
        # Torch may have changed the placements if there are more ranks than rows.
        weight.copy_(projected.redistribute(weight.device_mesh, weight.placements))
