"""What the commands read from a command line alike: each refuses what it cannot use, and says why."""

import argparse
import math
from pathlib import Path


def number_between(text: str, smallest: float, largest: float, what: str) -> float:
    """Read a number, both ends allowed; ``what`` is what the message calls it.

    Example:
        >>> from nero.arguments import number_between
        >>> number_between("0.5", 0.0, 1.0, "a proportion")
        0.5
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not smallest <= value <= largest:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return value


def output_file(text: str) -> str:
    """Read the path of a file to write: before the work is done, not after.

    Example:
        >>> from nero.arguments import output_file
        >>> output_file("-")
        '-'
    """
    if not Path(text).parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {str(Path(text).parent)!r}")
    return text
