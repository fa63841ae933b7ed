"""The ``nero`` command: `inspect`, `doctor`, and commands added by other distributions."""

from nero.cli.dispatch import main

__all__ = ["main"]
