"""Warnings that point at the line of the user's own code."""

import os
import sys
import warnings
from pathlib import Path

import torch

# Including torch, which wraps every step and no_grad functions.
_LIBRARIES = tuple(
    str(folder) + os.sep for folder in (Path(__file__).parents[1], Path(torch.__file__).parent)
)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn with the location of the innermost caller outside this package and torch."""
    level = 1
    while True:
        try:
            frame = sys._getframe(level)
        except ValueError:
            break
        if not frame.f_code.co_filename.startswith(_LIBRARIES):
            break
        level += 1
    warnings.warn(message, category, stacklevel=level + 1)
