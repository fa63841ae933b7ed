"""The same update at different speeds, behind one signature: ``step_(tasks)``."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from nero.backends import plain
from nero.backends.task import NeroOptions, NeroTask, Nonfinite

Backend: TypeAlias = Callable[[Sequence[NeroTask]], None]

__all__ = ["Backend", "NeroOptions", "NeroTask", "Nonfinite", "select_backend"]


def select_backend(*, fused: bool | None) -> Backend:
    """Return the fastest backend that ``fused`` allows.

    Args:
        fused: ``None`` picks, ``False`` takes the plain one, ``True`` insists on a kernel.

    Example:
        >>> from nero.backends import select_backend
        >>> select_backend(fused=True)
        Traceback (most recent call last):
        ValueError: fused=True: this version has no fused kernel; leave fused=None ...
    """
    if fused:
        raise ValueError(
            "fused=True: this version has no fused kernel; leave fused=None to get the fastest "
            "implementation that there is"
        )
    return plain.step_
