"""The ``nero`` command: `inspect`, `doctor`, and what other distributions add to it."""

from nero.cli.dispatch import main

__all__ = ["main"]
