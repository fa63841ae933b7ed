"""Warnings that point at the line of the user's own code."""

import os
import sys
import warnings
from pathlib import Path

import torch

# Torch's too, which wraps every step and whatever runs without gradients.
_NOT_THE_USERS = tuple(
    str(folder) + os.sep for folder in (Path(__file__).parents[1], Path(torch.__file__).parent)
)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn as if from the first line of code outside this package and torch that led here.

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
        if not frame.f_code.co_filename.startswith(_NOT_THE_USERS):
            break
        level += 1
    warnings.warn(message, category, stacklevel=level + 1)
