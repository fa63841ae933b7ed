"""Shard a model across any number of simulated ranks, without memory for its weights.

Reports rank 0's optimizer state in bytes, and the collectives of one step with their sizes.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nero.cli.arguments import CommandError, add_example_argument, add_json_argument, output_file
from nero.cli.environment import environment
from nero.cli.load import load_example, load_model
from nero.cli.output import print_or_write
from nero.numbers import human_bytes
from nero.tables import aligned
from nero_tools.arguments import add_optimizers_argument
from nero_tools.models import MODELS
from nero_tools.plan.mesh import Ranks, parse_ranks
from nero_tools.plan.simulate import FLAT_OPTIMIZERS, OPTIMIZERS, Plan, plan
from nero_tools.progress import progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``nero plan``."""
    parser.add_argument(
        "--model",
        default="llama-8b",
        metavar="NAME",
        help=f"one of {', '.join(MODELS)} (default: %(default)s), or MODULE:CALLABLE, a callable without "
        "arguments that returns a torch.nn.Module",
    )
    add_example_argument(parser)
    parser.add_argument(
        "--mesh",
        type=parse_ranks,
        action="append",
        metavar="AXIS=SIZE,...",
        help="sizes of any of the axes replicate, fsdp and tp, such as replicate=16,fsdp=128,tp=8; or "
        "zero=8 (DeepSpeed ZeRO 1 and 2) or zero3=8 alone; give it several times to compare "
        "(default: fsdp=8)",
    )
    add_optimizers_argument(parser, dict.fromkeys([*OPTIMIZERS, *FLAT_OPTIMIZERS]))
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
    example = None if args.example is None else load_example(args.example)
    if args.plot is not None:
        figure_class()  # before minutes of work, not after
    plans = []
    for ranks in args.mesh or [Ranks(fsdp=8)]:
        with progress(f"{args.model} on {ranks.size:,} ranks") as show:
            plans.append(
                plan(
                    model,
                    ranks,
                    name=args.model,
                    optimizers=args.optimizers,
                    example=example,
                    on_progress=show,
                )
            )
    figures = {**environment("cpu"), "plans": [each.as_dict() for each in plans]}
    print_or_write("\n\n".join(map(table, plans)), figures, args.json)
    if args.plot is not None:
        plot(plans, args.plot)


def table(plan: Plan) -> str:
    """Return one mesh's table, fit for a terminal or a mail."""
    rows = [["optimizer", "state/rank", "collectives/step", "bytes/step", "kinds"]]
    for name, cost in plan.costs.items():
        kinds = ", ".join(f"{num:,} {kind}" for kind, num in cost.collectives.items())
        state, sent = human_bytes(cost.state_bytes), human_bytes(cost.communicated_bytes)
        rows.append([name, state, f"{cost.num_collectives:,}", sent, kinds or "-"])
    title = (
        f"{plan.model}: {plan.num_parameters:,} parameters on {plan.ranks.size:,} ranks ({plan.ranks}), "
        f"{human_bytes(plan.parameter_bytes)} of them on rank 0"
    )
    notes = [f"{name} was not counted: {why}" for name, why in plan.left_out.items()]
    return "\n".join([title, aligned(rows, left=(0, 4)), *notes, *plan.notes])


def plot(plans: Sequence[Plan], path: str | Path) -> None:
    """Draw the bytes of state, and those communicated by a step, against the number of ranks.

    Raises:
        CommandError: if matplotlib is not installed, or cannot write such a file.
    """
    figure = figure_class()(figsize=(9, 4), layout="constrained")
    state, sent = figure.subplots(1, 2)
    ordered = sorted(plans, key=lambda plan: plan.ranks.size)
    names = dict.fromkeys(name for plan in ordered for name in plan.costs)
    for axes, title, figure_of in (
        (state, "state on a rank", "state_bytes"),
        (sent, "communicated by a step", "communicated_bytes"),
    ):
        for index, name in enumerate(names):
            drawn = [plan for plan in ordered if name in plan.costs]
            sizes = [plan.ranks.size for plan in drawn]
            nums = [getattr(plan.costs[name], figure_of) for plan in drawn]
            width = max(7 - 2 * index, 1)  # so that lines on top of each other are all seen
            axes.plot(sizes, nums, "o-", linewidth=width, markersize=width + 3, label=name)
        axes.set_xscale("log", base=2)
        # Linear below a kilobyte, because nothing at all is the most common number of bytes.
        axes.set_yscale("symlog", linthresh=1000)
        _, high = axes.get_ylim()
        axes.set_ylim(-200, 3 * high)
        axes.set_yticks([0, *(10**k for k in range(3, 16) if 10**k < 3 * high)])
        axes.grid(axis="y", alpha=0.3)
        axes.set_xlabel("ranks")
        axes.set_title(f"{title}, bytes")
    state.legend(loc="best", frameon=False)
    figure.suptitle(", ".join(dict.fromkeys(plan.model for plan in plans)))
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise CommandError(
            f"cannot write the picture {path}: {error}; give a name such as plan.png"
        ) from error


def figure_class() -> Any:
    """Return matplotlib's figure, or raise a `CommandError` that says how to get it."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise CommandError(
            "a picture needs matplotlib: pip install matplotlib, or leave --plot out"
        ) from error
    return Figure
