"""Load models and batches named on the command line."""

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping

import torch
from torch import nn

from nero.cli.arguments import CommandError, ModelError


def load_model(
    target: str, *, known: Mapping[str, Callable[[], nn.Module]] | None = None
) -> nn.Module:
    """Build the model named by ``MODULE:CALLABLE``, or one of the ``known`` models.

    Builds it on the meta device, without memory for its weights, if its code allows that.

    Raises:
        CommandError: if there is no such callable, it needs arguments, or it returns something else.
        ModelError: if the user's own code raises.
    """
    known = known or {}
    build = known[target] if target in known else _find(target, known)
    model = build if isinstance(build, nn.Module) else _build(build, target)
    if not isinstance(model, nn.Module):
        raise CommandError(
            f"{target} returned {type(model).__name__}, but must return a torch.nn.Module"
        )
    return model


def load_example(target: str) -> object:
    """Return the batch named or returned by ``MODULE:CALLABLE``.

    Raises:
        CommandError: if there is no such callable, or it needs arguments.
    """
    example = _find(target, {})
    return example if isinstance(example, torch.Tensor) else _build(example, target)


def _find(target: str, known: Mapping[str, object]) -> object:
    module_name, _, attribute = target.partition(":")
    if not attribute or not all(part.isidentifier() for part in module_name.split(".")):
        options = f"none of {', '.join(known)}, and " if known else ""
        raise CommandError(
            f"{target!r} is {options}not of the form MODULE:CALLABLE: give one such as "
            "mypackage.models:resnet"
        )
    sys.path.insert(0, os.getcwd())
    try:
        value: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise CommandError(
            f"cannot import {module_name!r}: {error}; run it where Python can find it, or install it"
        ) from error
    except (Exception, SystemExit) as error:
        raise ModelError(_blame(f"importing {module_name!r}", error)) from error
    try:
        for part in attribute.split("."):
            value = getattr(value, part)
    except AttributeError as error:
        raise CommandError(f"{error}: give the name of a callable that it has") from error
    return value


def _build(build: object, target: str) -> object:
    if not callable(build):
        raise CommandError(
            f"{target} is {type(build).__name__}, neither callable nor a module: give one that is"
        )
    try:
        inspect.signature(build).bind()
    except ValueError:  # some builtins have no signature
        pass
    except TypeError as error:
        raise CommandError(
            f"{target} cannot be called without arguments: {error}; give a function that needs none"
        ) from error
    try:
        with torch.device("meta"):
            return build()
    except (Exception, SystemExit):
        pass  # its constructor may read values, which tensors on the meta device do not have
    try:
        return build()
    except (Exception, SystemExit) as error:
        raise ModelError(_blame(f"calling {target}", error)) from error


def _blame(action: str, error: BaseException) -> str:
    """Describe in one line what the user's code raised, and where."""
    message = " ".join(str(error).split())
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    own = [
        f for f in frames if "site-packages" not in f.filename and not f.filename.startswith("<")
    ]
    where = "".join(f" ({f.filename}, line {f.lineno})" for f in (own or frames)[-1:])
    return f"{action} raised {type(error).__name__}: {message}{where}"
