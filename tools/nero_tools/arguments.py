"""Command-line arguments shared by the tools, in addition to `nero.cli.arguments`."""

import argparse
import math
from collections.abc import Callable, Mapping

from nero.cli.arguments import CommandError, names_of

_LARGEST = 10**18


def add_optimizers_argument(parser: argparse.ArgumentParser, known: Mapping[str, object]) -> None:
    """Add the names of the optimizers to compare, all of those that are ``known`` by default."""
    parser.add_argument(
        "--optimizers",
        type=names_of(known),
        default=",".join(known),
        metavar="NAME,...",
        help="optimizers to compare (default: %(default)s)",
    )


def number_between(text: str, smallest: float, largest: float, what: str) -> float:
    """Read a number, both ends allowed; ``what`` is what the message calls it."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not smallest <= value <= largest:
        raise CommandError(f"{text!r} must be {what}")
    return value


def whole_number(smallest: int, largest: int = _LARGEST) -> Callable[[str], int]:
    """Return a reader of whole numbers, both ends allowed."""

    def read(text: str) -> int:
        digits = text.strip()
        if digits.isdecimal() and len(digits) < 20 and smallest <= int(digits) <= largest:
            return int(digits)
        shown = text if len(text) < 30 else f"{text[:20]}..."
        raise CommandError(f"{shown!r} must be a whole number from {smallest} to {largest:.0e}")

    return read
