"""The options of ``nero plan``."""

import argparse
from collections.abc import Callable

from torch import nn

from nero.arguments import output_file
from nero.bench.command import add_json_argument, names_of, print_or_write, progress
from nero.bench.report import environment
from nero.planning.contenders import CONTENDERS
from nero.planning.mesh import Ranks, parse_ranks
from nero.planning.models import MODELS
from nero.planning.report import as_dict, figure_class, plot, table
from nero.planning.simulate import Plan, plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``nero plan``."""
    parser.add_argument(
        "--model",
        default="llama-8b",
        metavar="NAME",
        help=f"one of {', '.join(MODELS)} (default: %(default)s), or MODULE:CALLABLE, a callable without "
        "arguments that returns a torch.nn.Module",
    )
    parser.add_argument(
        "--mesh",
        type=_ranks,
        action="append",
        metavar="AXIS=SIZE,...",
        help="sizes of any of the axes replicate, fsdp and tp, such as replicate=16,fsdp=128,tp=8; give it "
        "several times to compare (default: fsdp=8)",
    )
    parser.add_argument(
        "--optimizers",
        type=names_of(CONTENDERS),
        default=",".join(CONTENDERS),
        metavar="NAME,...",
        help="who is compared (default: %(default)s)",
    )
    add_json_argument(parser)
    parser.add_argument(
        "--plot",
        type=output_file,
        metavar="FILE",
        help="draw bytes against ranks, a point for each --mesh; needs matplotlib",
    )


def run_command(args: argparse.Namespace, model: nn.Module) -> None:
    """Plan for every mesh, and show the figures.

    Raises:
        PlanError: if the model cannot be cut so, or there is no matplotlib to draw with.
    """
    if args.plot is not None:
        figure_class()  # before minutes of work, not after
    plans = []
    with progress() as tell:
        for ranks in args.mesh or [Ranks(fsdp=8)]:
            plans.append(_plan(args, model, ranks, tell))
    figures = {**environment("cpu"), "plans": [as_dict(plan) for plan in plans]}
    print_or_write("\n\n".join(map(table, plans)), figures, args.json)
    if args.plot is not None:
        plot(plans, args.plot)


def _plan(
    args: argparse.Namespace, model: nn.Module, ranks: Ranks, tell: Callable[[str], None]
) -> Plan:
    return plan(
        model,
        ranks,
        name=args.model,
        optimizers=args.optimizers,
        on_progress=lambda what: tell(f"{args.model} on {ranks.size:,} ranks: {what}"),
    )


def _ranks(text: str) -> Ranks:
    try:
        return parse_ranks(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
