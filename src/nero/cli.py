"""The ``nero`` command."""

import argparse
import importlib
import inspect
import json
import os
import sys
from collections.abc import Sequence

import torch
from torch import nn

from nero import __version__
from nero.bench.command import add_arguments as add_bench_arguments
from nero.bench.command import run_command as run_bench
from nero.core.sphere import CONSTRAINT_NAMES
from nero.layout import Description, LayoutError, describe
from nero.layout.description import COLUMNS
from nero.planning import MODELS, PlanError
from nero.planning.command import add_arguments as add_plan_arguments
from nero.planning.command import run_command as run_plan
from nero.theory.command import TheoryError
from nero.theory.command import add_arguments as add_theory_arguments
from nero.theory.command import run_command as run_theory


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ``nero`` command and return its exit code.

    Example:
        >>> from nero.cli import main
        >>> main(["inspect", "torch.nn:PReLU", "--plain"])
        parameter  shape  role   neurons  fan-in  constraint  state  why
        weight     1      other  1        1       none        24 B   PReLU
        <BLANKLINE>
        1 parameters, 0 neurons, 24 bytes of state, 300.00% of Adam's
        0
    """
    args = _parser().parse_args(argv)
    code: int = args.run(args)
    return code


def _inspect(args: argparse.Namespace) -> int:
    try:
        description = describe(_load_model(args.model), constraint=args.constraint)
    except (_UsageError, LayoutError) as error:
        print(f"nero inspect: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(description.as_dict(), indent=2))
    else:
        _show(description, plain=args.plain)
    return 0


def _plan(args: argparse.Namespace) -> int:
    try:
        if args.model in MODELS:
            model = _build(MODELS[args.model], args.model)
            assert isinstance(model, nn.Module)
        elif ":" in args.model:
            model = _load_model(args.model)
        else:
            raise _UsageError(
                f"{args.model!r} is none of {', '.join(MODELS)}, and not of the form MODULE:CALLABLE"
            )
        run_plan(args, model)
    except (_UsageError, LayoutError, PlanError) as error:
        print(f"nero plan: {error}", file=sys.stderr)
        return 2
    return 0


def _theory(args: argparse.Namespace) -> int:
    try:
        run_theory(args, _load_model(args.model))
    except (_UsageError, LayoutError, TheoryError) as error:
        print(f"nero theory: {error}", file=sys.stderr)
        return 2
    return 0


class _UsageError(Exception):
    """What the user named cannot be used; the message says why."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nero", description="Tools for the Nero optimiser.")
    parser.add_argument("--version", action="version", version=f"nero {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    inspect = commands.add_parser(
        "inspect",
        help="say what Nero does with every parameter of a model, and why",
        description="Build a model and print what Nero does with every parameter of it, and why. "
        "The model is built without memory for its weights where its code allows that.",
    )
    inspect.add_argument(
        "model",
        metavar="MODULE:CALLABLE",
        help="a callable without arguments that returns a torch.nn.Module, such as mypackage.models:resnet",
    )
    inspect.add_argument("--constraint", default="balanced", choices=sorted(CONSTRAINT_NAMES))
    inspect.add_argument("--json", action="store_true", help="print JSON")
    inspect.add_argument("--plain", action="store_true", help="print a table without colours")
    inspect.set_defaults(run=_inspect)
    bench = commands.add_parser(
        "bench",
        help="time a step of Nero against torch's fused SGD and AdamW",
        description="Time a whole optimiser step of Nero against torch's fused SGD and AdamW on the "
        "parameters of well-known models. Rivals take turns on the same weights; steps that other load "
        "disturbed are left out. Leave the machine alone meanwhile.",
    )
    add_bench_arguments(bench)
    bench.set_defaults(run=run_bench)
    plan = commands.add_parser(
        "plan",
        help="count what optimisers hold and send on any number of ranks, without the ranks",
        description="Cut a model among any number of ranks, without the ranks and without memory for its "
        "weights, and count on rank 0 the bytes of optimiser state, and the collectives that one step "
        "issues with the sizes of the tensors that they add up or gather.",
    )
    add_plan_arguments(plan)
    plan.set_defaults(run=_plan)
    theory = commands.add_parser(
        "theory",
        help="bound the error rate of a model by the paper's theory",
        description="Take the spheres on which a model's neurons lie, and bound the error rate of the "
        "networks that fit all training samples: by the paper's estimate of a cap, and by its exact "
        "measure.",
    )
    add_theory_arguments(theory)
    theory.set_defaults(run=_theory)
    return parser


def _load_model(target: str) -> nn.Module:
    module_name, colon, attribute = target.partition(":")
    if not colon or not attribute:
        raise _UsageError(
            f"{target!r} is not of the form MODULE:CALLABLE, such as mypackage.models:resnet"
        )
    sys.path.insert(0, os.getcwd())
    try:
        build = importlib.import_module(module_name)
        for part in attribute.split("."):
            build = getattr(build, part)
    except ModuleNotFoundError as error:
        raise _UsageError(f"cannot import {module_name!r}: {error}") from error
    except AttributeError as error:
        raise _UsageError(str(error)) from error
    model = _build(build, target)
    if not isinstance(model, nn.Module):
        raise _UsageError(f"{target} returned {type(model).__name__}, not a torch.nn.Module")
    return model


def _build(build: object, target: str) -> object:
    if isinstance(build, nn.Module):
        return build
    if not callable(build):
        raise _UsageError(
            f"{target} is {type(build).__name__}, which is neither callable nor a module"
        )
    try:
        inspect.signature(build).bind()
    except TypeError as error:
        raise _UsageError(f"{target} cannot be called without arguments: {error}") from error
    try:
        with torch.device("meta"):
            return build()
    except Exception:  # its constructor reads numbers, which the meta device does not have
        return build()


def _show(description: Description, *, plain: bool) -> None:
    try:
        from rich.console import Console
        from rich.table import Table
    except ModuleNotFoundError:
        plain = True
    if plain or not sys.stdout.isatty():  # rich would cut the table to 80 columns
        print(description)
        return
    table = Table(*COLUMNS, header_style="bold")
    for column in ("neurons", "fan-in", "state"):
        table.columns[COLUMNS.index(column)].justify = "right"
    for column in ("parameter", "shape", "why"):
        table.columns[COLUMNS.index(column)].overflow = "fold"
    styles = {"neuron": "cyan", "gain": "magenta", "bias": "yellow"}
    for row in description.rows:
        table.add_row(*row.cells(), style=styles.get(row.role))
    console = Console()
    console.print(table)
    console.print(description.summary(), highlight=False)


if __name__ == "__main__":
    sys.exit(main())
