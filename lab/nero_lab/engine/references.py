"""What a user names as ``package.module:name``: optimizers and tasks of their own."""

import importlib
from typing import Any

from nero_lab.engine.errors import ConfigError, in_one_line


def is_reference(name: str) -> bool:
    """Return whether a name is meant as ``package.module:name``."""
    return ":" in name


def resolve(reference: str, *, what: str) -> Any:
    """Import what a reference names.

    Args:
        reference: ``package.module:name``, of a module that is installed or in the working directory.
        what: what is expected to be there, for the message.

    Example:
        >>> resolve("math:inf", what="number")
        inf

    Raises:
        ConfigError: if it has another form, or cannot be imported, for whatever reason.
    """
    module, _, name = reference.partition(":")
    # Parts of a name, so that no path can be hidden in it: it names the folder of a run.
    if not all(part.isidentifier() for part in [*module.split("."), name]):
        raise ConfigError(f"{reference!r} is not of the form package.module:{what}")
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        raise ConfigError(f"{reference} cannot be imported: {in_one_line(error)}") from error
