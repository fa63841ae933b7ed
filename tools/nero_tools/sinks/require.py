"""Packages that only one sink needs."""

from importlib import import_module
from typing import Any


def require(module: str, sink: str) -> Any:
    """Import what a sink needs, or say what to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.rpartition(".")[2]
        raise ModuleNotFoundError(f"{sink} needs {package}: pip install {package}") from error
