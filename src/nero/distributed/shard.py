"""A parameter of which this rank holds a shard."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from nero.core.held import Held, project_blocks_
from nero.core.neurons import Neurons
from nero.core.sharding import to_local
from nero.core.sphere import Sphere, project
from nero.core.update import Places
from nero.distributed.owners import cuts_of
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
    """A DTensor: under FSDP2, tensor parallelism or both."""

    param: DTensor

    def __init__(self, param: Tensor, neurons: Neurons) -> None:
        super().__init__(param, neurons)
        self.is_cut = bool(cuts_of(param))
        self.mesh = self.param.device_mesh
        self.layer_mesh_dims: tuple[Any, ...] = sharded_mesh_dims(param)
        self.neuron_mesh_dims: tuple[Any, ...] = fan_in_mesh_dims(param, neurons)

    @property
    def local(self) -> Tensor:
        """The tensor of this rank."""
        return self.param.to_local()

    def local_grad(self, name: str) -> Tensor | None:
        """Return this rank's part of the gradient, placed as the parameter is; may communicate."""
        grad = self.param.grad
        return None if grad is None else local_pair(self.param, grad, name)[1]

    def check(self, name: str) -> None:
        """Raise if the placements leave no neurons, or cut what cannot be cut."""
        check_placements(self.param, self.neurons, name)

    def places(self) -> Places:
        """Return where this rank's elements lie in the full parameter."""
        return places_of(self.param, self.neurons)

    def zeros_per_neuron(self, dtype: torch.dtype) -> Tensor:
        """Return a zero for each neuron, sharded as the neurons are."""
        return per_neuron(self.param, self.neurons, dtype=dtype, device=self.param.device)

    def neuron_norms(self) -> Tensor:
        """Return the norm of each neuron's finite weights, sharded as the neurons are."""
        return sharded_neuron_norm(self.param, self.neurons)

    def project_(self, constraint: Sphere, radius: Tensor | None = None) -> None:
        """Project every neuron in place; ranks that share neurons do it together."""
        if not self.neuron_mesh_dims:
            radius = None if radius is None else to_local(radius)
            project_blocks_(self.local, self.neurons, constraint, radius)
            return
        weight: Any = self.neurons.view(self.param)
        dims = self.neurons.fan_in_dims
        projected: Any = project(weight, fan_in_dims=dims, constraint=constraint, radius=radius)
        # Torch may have placed it otherwise, where there are more ranks than rows.
        weight.copy_(projected.redistribute(weight.device_mesh, weight.placements))
