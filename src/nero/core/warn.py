"""What messages share: warnings point at the line of the user's own code, and long lists are cut."""

import os
import sys
import warnings
from collections.abc import Iterable, Sequence
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


def and_more(items: Sequence[object], num_shown: int = 3, *, separator: str = ", ") -> str:
    """List the first few items, and count the others.

    Example:
        >>> from nero.core.warn import and_more
        >>> and_more(["`a`", "`b`", "`c`", "`d`", "`e`"])
        '`a`, `b`, `c` and 2 more'
    """
    num_others = len(items) - num_shown
    others = f" and {num_others:,} more" if num_others > 0 else ""
    return separator.join(map(str, items[:num_shown])) + others


def listed(names: Iterable[str], num_shown: int = 3) -> str:
    """List the first few names as code, and count the others."""
    return and_more([f"`{name}`" for name in names], num_shown)
