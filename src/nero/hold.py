"""Who answers for a parameter: the tensor itself, or a shard."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from nero.core.held import Held, held_range
from nero.core.neurons import Neurons, neurons_from_options
from nero.core.sharding import is_sharded


def hold(param: Tensor, neurons: Neurons) -> Held:
    """Return a parameter as this rank holds it.

    Example:
        >>> from nero.layout import neurons
        >>> from nero.hold import hold
        >>> hold(torch.zeros(3, 4), neurons(0).at((3, 4))).neuron_norms().shape
        torch.Size([3, 1])
    """
    if is_sharded(param):
        from nero.distributed import Shard  # imports torch's distributed engine

        return Shard(param, neurons)
    return Held(param, neurons)


def hold_in(group: Mapping[str, Any], param: Tensor) -> Held:
    """Return a parameter of a param group as this rank holds it."""
    known = held_range(param)
    return hold(param, neurons_from_options(group, param.shape)) if known is None else known
