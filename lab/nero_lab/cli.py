"""The ``nero-lab`` command."""

import argparse
import ast
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nero_lab import __version__

_NEEDS = "nero-lab needs packages that are not installed: pip install nero-lab (missing: {})"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ``nero-lab`` command and return its exit code."""
    try:
        import nero_lab.tasks  # noqa: F401  # stands for what every command needs
        from nero_lab.errors import ConfigError, DataError
    except ModuleNotFoundError as error:
        print(_NEEDS.format(error.name), file=sys.stderr)
        return 2
    args = _parser().parse_args(argv)
    sys.path.insert(0, os.getcwd())  # for optimisers of the user's own
    try:
        code: int = args.function(args)
    except (ConfigError, DataError) as error:
        print(f"nero-lab {args.command}: {error}", file=sys.stderr)
        return 2
    return code


def _list(args: argparse.Namespace) -> int:
    from nero_lab.listing import print_tasks

    print_tasks()
    return 0


def _run(args: argparse.Namespace) -> int:
    from nero_lab.config import RunConfig
    from nero_lab.run import run

    config = RunConfig(
        task=args.task,
        scale=args.scale,
        optimizer=args.optimizer,
        lr=args.lr,
        seed=args.seed,
        variant=args.variant,
        options=dict(args.set),
        epochs=args.epochs,
    )
    record = run(config, _place(args))
    if os.environ.get("RANK", "0") == "0":
        print(f"{config.name}: {_ending(config, record)}, records in {args.runs_dir / config.name}")
    return 0


def _ending(config: Any, record: Any) -> str:
    metric = config.described.metric
    if record.status == "diverged":
        return f"diverged: {record.end['message']}"
    best = record.best(metric.name, higher_is_better=metric.higher_is_better)
    return f"{record.status}, {metric.label} {record.last(metric.name):.4g} (best {best:.4g})"


def _sweep(args: argparse.Namespace) -> int:
    from nero_lab.sweep import sweep_command

    return sweep_command(args, _place(args))


def _report(args: argparse.Namespace) -> int:
    from nero_lab.report import report_command

    return report_command(args)


def _place(args: argparse.Namespace) -> Any:
    from nero_lab.data.files import default_data_dir
    from nero_lab.run import Place

    return Place(
        runs_dir=args.runs_dir,
        data_dir=args.data_dir or default_data_dir(),
        checkpoint_steps=args.checkpoint_steps,
        tensorboard=not args.no_tensorboard,
        quiet=args.quiet,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nero-lab",
        description="The experiments of the Nero paper, and a comparison with today's optimisers.",
    )
    parser.add_argument("--version", action="version", version=f"nero-lab {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser(
        "list", help="every task: figure, data, size and time at each scale"
    )
    listing.set_defaults(function=_list)
    _add_run_options(commands.add_parser("run", help="one run; goes on where it was interrupted"))
    _add_sweep_options(
        commands.add_parser("sweep", help="many runs, on Ray; goes on where it was interrupted")
    )
    _add_report_options(commands.add_parser("report", help="figures and tables from records"))
    return parser


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    _add_task(parser)
    parser.add_argument(
        "--optimizer",
        default="nero",
        metavar="NAME",
        help="a name, or package.module:function of (model, lr) (default: %(default)s)",
    )
    parser.add_argument("--lr", type=float, help="learning rate (default: the published best one)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variant", help="of the task, such as sigma-100 of mnist-reparam")
    _add_places(parser)
    parser.set_defaults(function=_run)


def _add_sweep_options(parser: argparse.ArgumentParser) -> None:
    _add_task(parser)
    parser.add_argument(
        "--optimizers", type=_names, default=["nero"], metavar="NAME,...", help="(default: nero)"
    )
    parser.add_argument(
        "--lrs",
        type=_numbers,
        metavar="LR,...",
        help="rates for each (default: each optimiser's own grid)",
    )
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--variants", type=_names, default=[None], metavar="NAME,...")
    parser.add_argument("--address", help="of a Ray cluster (default: one is started here)")
    parser.add_argument(
        "--cpus-per-run", type=int, default=1, metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--gpus-per-run", type=float, default=0, metavar="N", help="(default: %(default)s)"
    )
    _add_places(parser)
    parser.set_defaults(function=_sweep)


def _add_report_options(parser: argparse.ArgumentParser) -> None:
    for name, default, what in (
        ("--results", Path("runs"), "folder of records"),
        ("--out", Path("report"), "folder of the page"),
    ):
        parser.add_argument(name, type=Path, default=default, help=f"{what} (default: %(default)s)")
    parser.add_argument(
        "--scale", help="paper, cpu or smoke (default: that with most optimisers, for each task)"
    )
    parser.set_defaults(function=_report)


def _add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task")
    parser.add_argument("--scale", default="cpu", help="paper, cpu or smoke (default: %(default)s)")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's")
    parser.add_argument(
        "--set",
        type=_option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the recipe",
    )


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs-dir", type=Path, default=Path("runs"), help="(default: %(default)s)"
    )
    parser.add_argument("--data-dir", type=Path, help="(default: $NERO_DATA, or a cache folder)")
    parser.add_argument(
        "--checkpoint-steps", type=int, default=500, metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument("--no-tensorboard", action="store_true")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


def _names(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]
