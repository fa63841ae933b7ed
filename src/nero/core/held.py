"""A parameter as this rank holds it, so that optimizers need not ask whether it is sharded."""

from typing import Any

import torch
from torch import Tensor

from nero.core.neurons import Neurons
from nero.core.precision import finite_part
from nero.core.spec import StateSpec
from nero.core.sphere import Sphere, neuron_norm, project
from nero.core.update import Places

_BLOCK = 2**18  # elements, whose float64 copies fit into a core's cache


class Held:
    """A parameter that this rank holds in full; `nero.distributed.Shard` is the sharded counterpart."""

    is_cut = False
    """Whether other ranks hold other parts of its matrices."""
    is_range = False
    """Whether it is a range of a flat buffer, which may hold several parameters."""
    mesh: Any = None
    """The device mesh of a sharded parameter."""
    layer_mesh_dims: tuple[Any, ...] = ()
    """The mesh dims over which the layer is sharded, for reductions over a whole layer."""
    neuron_mesh_dims: tuple[Any, ...] = ()
    """The mesh dims over which the fan-in is sharded, for reductions over each neuron."""

    def __init__(self, param: Tensor, neurons: Neurons) -> None:
        self.param = param
        self.neurons = neurons

    @property
    def all_neurons(self) -> tuple[Neurons, ...]:
        """The neurons of all parameters that it holds: one, except in a flat buffer."""
        return (self.neurons,)

    @property
    def local(self) -> Tensor:
        """The tensor on this rank."""
        return self.param

    def local_grad(self, name: str) -> Tensor | None:
        """Return this rank's part of the gradient, with the parameter's placements."""
        return self.param.grad

    def check(self, name: str) -> None:
        """Raise if the parameter's placements are not supported."""

    def places(self) -> Places | None:
        """Return the position of this rank's shard in the full parameter, if it is sharded."""
        return None

    def zeros_per_neuron(self, dtype: torch.dtype) -> Tensor:
        """Return one zero per neuron."""
        return torch.zeros(self.neurons.state_shape, dtype=dtype, device=self.param.device)

    def new_state_tensor(self, key: str, spec: StateSpec, hyper: Any) -> Tensor:
        """Return a state tensor as it is before the first step."""
        param = self.param.detach()
        dtype = spec.dtype_for(param.dtype, hyper)
        if spec.initial is not None:
            return spec.initial(param, hyper, self.neuron_norms).to(dtype)
        if spec.shape == "scalar":
            return torch.zeros((), dtype=dtype, device=param.device)
        if spec.shape == "per element" or self.neurons.is_elementwise:
            return torch.zeros_like(param, dtype=dtype, requires_grad=False)
        return self.zeros_per_neuron(dtype)

    def neuron_norms(self) -> Tensor:
        """Return the norm of each neuron's finite weights."""
        finite = finite_part(self.neurons.view(self.param))
        norms = neuron_norm(finite, fan_in_dims=self.neurons.fan_in_dims)
        return norms.view(self.neurons.state_shape)

    def project_(self, constraint: Sphere, radius: Tensor | None = None) -> None:
        """Project every neuron in place.

        Args:
            constraint: the constraint, from `Sphere.for_fan_in`.
            radius: each neuron's norm, for ``Sphere("initial")``.
        """
        project_blocks_(self.local, self.neurons, constraint, radius)


def held_range(param: Tensor) -> Held | None:
    """Return the holder of a range of a flat buffer, which says nothing of neurons by its shape."""
    known = getattr(param, _RANGE, None)
    return known if isinstance(known, Held) else None


def is_range(param: Tensor) -> bool:
    """Whether it is a range of a flat buffer."""
    known = held_range(param)
    return known is not None and known.is_range


def hold_range(held: Held) -> None:
    """Let a range answer to this holder from now on."""
    setattr(held.param, _RANGE, held)


_RANGE = "_nero_range"


def project_blocks_(
    weight: Tensor, neurons: Neurons, constraint: Sphere, radius: Tensor | None
) -> None:
    """Project a plain tensor in place, a few neurons at a time if it is on a CPU."""
    weight, dims = neurons.view(weight), neurons.fan_in_dims
    dim = next((d for d in range(weight.ndim) if d not in dims), None)
    blocks: tuple[Tensor, ...] = (weight,)
    radii: tuple[Tensor | None, ...] = (radius,)
    if dim is not None and weight.device.type == "cpu" and weight.numel():
        size = max(1, _BLOCK * weight.shape[dim] // weight.numel())
        blocks = weight.split(size, dim)
        radii = (None,) * len(blocks) if radius is None else radius.split(size, dim)
    for block, norms in zip(blocks, radii, strict=True):
        block.copy_(project(block, fan_in_dims=dims, constraint=constraint, radius=norms))
