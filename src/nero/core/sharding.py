"""What plain tensor code must know of sharded tensors."""

from torch import Tensor
from torch.nn import Parameter


def is_sharded(tensor: Tensor) -> bool:
    """Tell whether ``tensor`` is a ``DTensor``, without importing the distributed engine.

    Example:
        >>> from nero.core.sharding import is_sharded
        >>> is_sharded(torch.zeros(3))
        False
    """
    # The first test is for speed: it is true of nearly all parameters, and asked at every step. The second
    # asks for what a compiler can see too.
    return type(tensor) not in (Tensor, Parameter) and hasattr(tensor, "placements")


def to_local(tensor: Tensor) -> Tensor:
    """Return what this rank holds of ``tensor``: all of it, unless it is a ``DTensor``.

    Example:
        >>> from nero.core.sharding import to_local
        >>> to_local(torch.tensor(3.0))
        tensor(3.)
    """
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def full_tensor(tensor: Tensor) -> Tensor:
    """Return ``tensor`` as a plain tensor that every rank holds in full.

    A plain tensor comes back as it is; a ``DTensor`` is gathered, so use it on scalars only.

    Example:
        >>> from nero.core.sharding import full_tensor
        >>> full_tensor(torch.tensor(3.0))
        tensor(3.)
    """
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]
