"""Folders that a run or a report writes to: checked before any work is done for them."""

import os
from pathlib import Path

from nero_lab.engine.errors import ConfigError


def check_can_be_made(folder: Path, *, option: str) -> None:
    """Refuse a folder that can be neither made nor written to, without making it.

    Args:
        folder: which may exist or not.
        option: what the user chose it with, for the message.

    Raises:
        ConfigError: if something else is in its way, or it may not be written to.
    """
    try:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{option} {str(folder)!r} cannot be a folder: {error}") from error
    if not there.is_dir():
        raise ConfigError(f"{option} {folder} cannot be a folder: {there} is a file")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{option} {folder} cannot be written to: you have no write permission for {there}"
        )
