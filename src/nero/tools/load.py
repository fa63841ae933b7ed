"""Models named on a command line."""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping

import torch
from torch import nn

from nero.tools.arguments import CommandError


def load_model(
    target: str, *, known: Mapping[str, Callable[[], nn.Module]] | None = None
) -> nn.Module:
    """Build the model that ``MODULE:CALLABLE`` names, or one of the ``known`` models.

    The model is built without memory for its weights where its code allows that.

    Raises:
        CommandError: if there is no such callable, it needs arguments, or it returns something else.
    """
    known = known or {}
    build = known[target] if target in known else _find(target, known)
    model = build if isinstance(build, nn.Module) else _build(build, target)
    if not isinstance(model, nn.Module):
        raise CommandError(f"{target} returned {type(model).__name__}, not a torch.nn.Module")
    return model


def load_example(target: str) -> object:
    """Return the batch that ``MODULE:CALLABLE`` names or returns.

    Raises:
        CommandError: if there is no such callable, or it needs arguments.
    """
    found = _find(target, {})
    return found if isinstance(found, torch.Tensor) else _build(found, target)


def _find(target: str, known: Mapping[str, object]) -> object:
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute or module_name.startswith("."):
        options = f"none of {', '.join(known)}, and " if known else ""
        raise CommandError(
            f"{target!r} is {options}not of the form MODULE:CALLABLE, such as mypackage.models:resnet"
        )
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        raise CommandError(f"cannot import {module_name!r}: {error}") from error
    except AttributeError as error:
        raise CommandError(str(error)) from error
    return found


def _build(build: object, target: str) -> object:
    if not callable(build):
        raise CommandError(
            f"{target} is {type(build).__name__}, which is neither callable nor a module"
        )
    try:
        inspect.signature(build).bind()
    except ValueError:  # some builtins have no signature
        pass
    except TypeError as error:
        raise CommandError(f"{target} cannot be called without arguments: {error}") from error
    try:
        with torch.device("meta"):
            return build()
    except Exception:  # its constructor reads numbers, which the meta device does not have
        return build()
