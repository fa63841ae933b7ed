"""The table that says which function follows which operation."""

from collections.abc import Callable
from typing import TypeAlias

from nero.layout.observation.observer import Call, Observer

Handler: TypeAlias = Callable[[Observer, Call, bool], None]
"""Follows parameters from the inputs of a call into its outcome; told whether the inputs hold data."""
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register a function for the operations of these names."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register
