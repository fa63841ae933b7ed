"""The ``nero-lab`` command."""

from nero_lab.cli.commands import main

__all__ = ["main"]
