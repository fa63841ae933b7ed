"""What the commands read from a command line; each reader refuses what it cannot use, and says why."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path


class CommandError(argparse.ArgumentTypeError):
    """A command cannot do what was asked, or read what was typed; the message says why."""

    exit_code = 2


class ModelError(CommandError):
    """The user's own code raised, when it was imported or called."""

    exit_code = 1


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Add the model to read, the constraint that its neurons are under, and ``--json``."""
    from nero.core.sphere import CONSTRAINT_NAMES

    parser.add_argument(
        "model",
        metavar="MODULE:CALLABLE",
        help="a callable without arguments that returns a torch.nn.Module, such as mypackage.models:resnet",
    )
    parser.add_argument("--constraint", default="balanced", choices=sorted(CONSTRAINT_NAMES))
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_example_argument(parser: argparse.ArgumentParser) -> None:
    """Add the batch that shows how a model uses its parameters; `nero.cli.load.load_example` reads it."""
    parser.add_argument(
        "--example",
        metavar="MODULE:CALLABLE",
        help="a callable without arguments that returns a batch for the model: layers that are not "
        "registered are then read by watching one forward pass",
    )


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option that `nero.cli.output.print_or_write` obeys."""
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
    """Return a reader of ``NAME,...`` that refuses names that are not ``known``."""

    def read(name: str) -> str:
        if name not in known:
            raise CommandError(f"{name!r} must be one of {', '.join(known)}")
        return name

    return list_of(read)


def output_file(text: str) -> str:
    """Read the path of a file to write, and check it before the work is done rather than after."""
    try:
        if Path(text).is_dir():
            raise CommandError(f"{text!r} is a folder: give the name of a file in it")
        if not Path(text).parent.is_dir():
            raise CommandError(f"there is no folder {str(Path(text).parent)!r}: make it first")
    except OSError as error:  # such as a name that is too long
        raise CommandError(
            f"cannot write such a file: {error.strerror}; give another name"
        ) from error
    return text
