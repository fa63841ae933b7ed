"""Errors that the user can fix: the command prints the message without a traceback."""

import traceback
from pathlib import Path


class ConfigError(ValueError):
    """The requested run is invalid."""


class DataError(RuntimeError):
    """A data set is missing or damaged."""


def in_one_line(error: BaseException) -> str:
    """Return the type and the message of any error, and where it was raised outside of Python itself.

    Example:
        >>> in_one_line(ValueError("a  message"))
        'ValueError: a message'
    """
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and Path(frame.filename).parent.name != "importlib"
    ]
    # The first frame is that of whoever caught it.
    return (
        f"{text} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
        if frames[1:]
        else text
    )
