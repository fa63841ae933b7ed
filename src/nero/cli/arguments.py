"""Shared command-line arguments, and readers that explain why a value is refused."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path


class CommandError(argparse.ArgumentTypeError):
    """A command cannot run, or cannot read its arguments; the message says why."""

    exit_code = 2


class ModelError(CommandError):
    """The user's own code raised when it was imported or called."""

    exit_code = 1


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Add the model, ``--constraint`` and ``--json``."""
    from nero.core.sphere import CONSTRAINT_NAMES

    parser.add_argument(
        "model",
        metavar="MODULE:CALLABLE",
        help="a callable without arguments that returns a torch.nn.Module, such as mypackage.models:resnet",
    )
    parser.add_argument("--constraint", default="balanced", choices=sorted(CONSTRAINT_NAMES))
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_example_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--example``, a batch for the model, read by `nero.cli.load.load_example`."""
    parser.add_argument(
        "--example",
        metavar="MODULE:CALLABLE",
        help="a callable without arguments that returns a batch for the model: one forward pass on it "
        "shows the layouts of layers that are not registered",
    )


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``, for `nero.cli.output.print_or_write`."""
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        type=output_file,
        metavar="FILE",
        help="write JSON to FILE; without FILE, print it instead of the tables",
    )


def list_of(read: Callable[[str], object]) -> Callable[[str], list[object]]:
    """Return a reader of comma-separated values; duplicates count once."""
    return lambda text: list(dict.fromkeys(read(part.strip()) for part in text.split(",")))


def names_of(known: Mapping[str, object]) -> Callable[[str], list[object]]:
    """Return a reader of ``NAME,...`` that accepts only ``known`` names."""

    def read(name: str) -> str:
        if name not in known:
            raise CommandError(f"{name!r} must be one of {', '.join(known)}")
        return name

    return list_of(read)


def output_file(text: str) -> str:
    """Read an output path, and check it before the work is done rather than after."""
    try:
        if Path(text).is_dir():
            raise CommandError(f"{text!r} is a folder: give the name of a file in it")
        if not Path(text).parent.is_dir():
            raise CommandError(f"there is no folder {str(Path(text).parent)!r}: make it first")
    except OSError as error:  # such as a name that is too long
        raise CommandError(
            f"cannot write this file: {error.strerror}; give another name"
        ) from error
    return text
