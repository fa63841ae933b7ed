"""Warnings that point at the line of the user's own code."""

import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn as if from the first line of code outside this package that led here.

    Example:
        >>> from nero.core.warn import warn_user
        >>> warn_user("a neuron has no direction")  # doctest: +SKIP
    """
    level = 1
    while True:
        try:
            frame = sys._getframe(level)
        except ValueError:
            break
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            break
        level += 1
    warnings.warn(message, category, stacklevel=level + 1)
