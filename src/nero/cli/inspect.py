"""Build a model and show how Nero treats each of its parameters, and why."""

import argparse
import json
import sys

from nero.cli.arguments import CommandError, add_example_argument, add_model_argument
from nero.cli.load import load_example, load_model
from nero.core.presets import PRESETS
from nero.layout import Description, describe
from nero.layout.description import COLUMNS

_STYLES = {"neuron": "cyan", "gain": "magenta", "bias": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``nero inspect``."""
    add_model_argument(parser)
    parser.set_defaults(constraint=None)  # the preset's own
    parser.add_argument("--preset", default="paper", choices=[*PRESETS])
    add_example_argument(parser)
    parser.add_argument("--plain", action="store_true", help="print a table without colors")


def run(args: argparse.Namespace) -> None:
    """Print a model's description.

    Raises:
        CommandError: if Nero does not support one of its parameters.
    """
    model = load_model(args.model)
    example = None if args.example is None else load_example(args.example)
    try:
        description = describe(
            model, constraint=args.constraint, preset=args.preset, example=example
        )
    except TypeError as error:  # an unsupported parameter
        raise CommandError(str(error)) from error
    if args.json:
        print(json.dumps(description.as_dict(), indent=2))
    elif args.plain or not sys.stdout.isatty() or not _print_colored(description):
        print(description)


def _print_colored(description: Description) -> bool:
    """Print the table with rich, and return whether rich is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ModuleNotFoundError:
        return False
    table = Table(header_style="bold")
    for column in COLUMNS:
        is_number = column in ("neurons", "fan-in", "state")
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in description.rows:
        table.add_row(*row.cells(), style=_STYLES.get(row.role))
    console = Console()
    console.print(table)
    console.print(description.summary(), highlight=False)
    return True
