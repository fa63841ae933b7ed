"""Helpers for tensors that may be a ``DTensor``, without importing ``torch.distributed``."""

from torch import Tensor
from torch.nn import Parameter


def is_sharded(tensor: Tensor) -> bool:
    """Whether ``tensor`` is a ``DTensor``."""
    # The type check is for speed: it settles nearly all parameters, at every step. The attribute check
    # also works under torch.compile.
    return type(tensor) not in (Tensor, Parameter) and hasattr(tensor, "placements")


def to_local(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a ``DTensor``; plain tensors come back unchanged."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a ``DTensor`` on every rank (use it for scalars); plain tensors come back unchanged."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]
