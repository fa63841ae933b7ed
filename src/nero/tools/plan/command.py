"""Cut a model among any number of ranks, without the ranks and without memory for its weights.

Counted on rank 0 are the bytes of optimiser state, and the collectives that one step issues with the sizes
of the tensors that they add up or gather.
"""

import argparse

from nero.tools.arguments import add_json_argument, names_of, output_file
from nero.tools.environment import environment
from nero.tools.load import load_model
from nero.tools.models import MODELS
from nero.tools.output import print_or_write, progress
from nero.tools.plan.mesh import Ranks, parse_ranks
from nero.tools.plan.report import figure_class, plot, table
from nero.tools.plan.simulate import OPTIMIZERS, plan


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
        type=parse_ranks,
        action="append",
        metavar="AXIS=SIZE,...",
        help="sizes of any of the axes replicate, fsdp and tp, such as replicate=16,fsdp=128,tp=8; give it "
        "several times to compare (default: fsdp=8)",
    )
    parser.add_argument(
        "--optimizers",
        type=names_of(OPTIMIZERS),
        default=",".join(OPTIMIZERS),
        metavar="NAME,...",
        help="optimisers to compare (default: %(default)s)",
    )
    add_json_argument(parser)
    parser.add_argument(
        "--plot",
        type=output_file,
        metavar="FILE",
        help="draw bytes against ranks, one point per --mesh; needs matplotlib",
    )


def run(args: argparse.Namespace) -> None:
    """Plan for every mesh, and show the figures.

    Raises:
        CommandError: if the model cannot be cut so, or there is no matplotlib to draw with.
    """
    model = load_model(args.model, known=MODELS)
    if args.plot is not None:
        figure_class()  # before minutes of work, not after
    plans = []
    for ranks in args.mesh or [Ranks(fsdp=8)]:
        with progress(f"{args.model} on {ranks.size:,} ranks") as show:
            plans.append(
                plan(model, ranks, name=args.model, optimizers=args.optimizers, on_progress=show)
            )
    figures = {**environment("cpu"), "plans": [each.as_dict() for each in plans]}
    print_or_write("\n\n".join(map(table, plans)), figures, args.json)
    if args.plot is not None:
        plot(plans, args.plot)
