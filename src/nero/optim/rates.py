"""Learning rates: numbers, or tensors that their owner may write to."""

from torch import Tensor

from nero.core.spec import learning_rate


class RateCopies:
    """The groups' learning rates, which follow the tensor given to the optimizer.

    Each group has a copy: if they shared one tensor, ``group["lr"] *= 0.1`` in a loop over groups would
    multiply it once per group.
    """

    def __init__(self) -> None:
        self._copies: list[Tensor] = []
        self._version = 0

    def read(self, lr: float | Tensor, default: float | Tensor) -> float | Tensor:
        """Check the learning rate of a group; a tensor is copied, and followed if it is the default."""
        learning_rate("lr", lr)
        if not isinstance(lr, Tensor):
            return lr
        copy = lr.clone()
        if lr is default:
            self.follow(lr)  # or the other copies would miss what was written since the last step
            self._copies.append(copy)
            self._version = lr._version
        return copy

    def follow(self, lr: float | Tensor) -> None:
        """Copy the tensor given as ``lr`` into the groups if its owner has written to it since."""
        if self._copies and isinstance(lr, Tensor) and lr._version != self._version:
            self._version = lr._version
            for copy in self._copies:
                copy.copy_(lr)
