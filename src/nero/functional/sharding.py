"""The one thing that plain tensor code must know of sharded tensors."""

from torch import Tensor


def whole(tensor: Tensor) -> Tensor:
    """Return ``tensor`` as a plain tensor that every rank holds in full.

    A plain tensor comes back as it is; a ``DTensor`` is gathered, so use it on scalars only.

    Example:
        >>> from nero.functional.sharding import whole
        >>> whole(torch.tensor(3.0))
        tensor(3.)
    """
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()
