"""The arguments of the ``nero-lab`` command."""

import argparse
import ast
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nero_lab import __version__


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments; ``args.command`` is the name of the command."""
    args, unknown = _build_parser().parse_known_args(argv)
    if unknown:  # here, because the parent would show its own usage
        args.refuse(f"unrecognized arguments: {' '.join(unknown)}")
    return args


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nero-lab",
        description="The experiments of the Nero paper, and a comparison with today's optimizers.",
    )
    parser.add_argument("--version", action="version", version=f"nero-lab {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (summary, add_options) in _COMMANDS.items():
        # In full: `sweep --seed 1` would be taken for `--seeds 1`, which is seed 0.
        command = commands.add_parser(name, help=summary, allow_abbrev=False)
        command.set_defaults(refuse=command.error)
        add_options(command)
    return parser


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    _add_task(parser)
    _add_changes(parser)
    parser.add_argument(
        "--optimizer",
        default="nero",
        metavar="NAME",
        help="a name, or package.module:function taking (model, lr) (default: %(default)s)",
    )
    parser.add_argument("--lr", type=float, help="learning rate (default: the published best one)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variant", help="a variant of the task: sigma-100 for mnist-reparam")
    _add_run_dirs(parser)


def _add_sweep_options(parser: argparse.ArgumentParser) -> None:
    _add_task(parser)
    _add_changes(parser)
    _add_optimizers(parser)
    parser.add_argument(
        "--lrs",
        type=_numbers,
        metavar="LR,...",
        help="learning rates to try (default: each optimizer's own grid)",
    )
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="(default: %(default)s)")
    parser.add_argument(
        "--widen",
        type=int,
        metavar="N",
        help=(
            "add up to N learning rates while the best one is at an end of the grid (default: 4, or "
            "0 with --lrs)"
        ),
    )
    parser.add_argument("--variants", type=_names, default=[None], metavar="NAME,...")
    parser.add_argument("--address", help="a Ray cluster (default: start one on this machine)")
    parser.add_argument(
        "--cpus-per-run", type=int, default=1, metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--gpus-per-run", type=float, default=0, metavar="N", help="(default: %(default)s)"
    )
    _add_run_dirs(parser)


def _add_protocol_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", default="mini", help="scale of every run (default: %(default)s)")
    parser.add_argument(
        "--only",
        type=_names,
        metavar="NAME,...",
        help=(
            "comparisons whose names start with one of these, such as today or table-1/cgan (default: all)"
        ),
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="start no new run after this many minutes (default: no limit)",
    )
    parser.add_argument(
        "--list", action="store_true", help="print the number of runs in each comparison, and exit"
    )
    parser.add_argument(
        "--results",
        type=_folder,
        metavar="FOLDER",
        help=(
            "folder of collected runs, which also count as done (default: only runs in --runs-dir)"
        ),
    )
    _add_run_dirs(parser)


def _add_time_options(parser: argparse.ArgumentParser) -> None:
    _add_task(parser)
    _add_changes(parser)
    _add_optimizers(parser)
    parser.add_argument("--variant", help="a variant of the task")
    parser.add_argument(
        "--rounds",
        type=int,
        default=20,
        metavar="N",
        help="timed steps per optimizer (default: %(default)s)",
    )
    parser.add_argument(
        "--max-load",
        type=float,
        metavar="SHARE",
        help="largest share of the CPU that other processes may use while timing (default: 0.05)",
    )
    _add_dirs(parser)


def _add_collect_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs_dir", type=_folder, metavar="RUNS_DIR", help="folder of runs")
    parser.add_argument(
        "--results",
        type=_folder,
        required=True,
        help="folder of results, with one file for each task and scale",
    )


def _add_report_options(parser: argparse.ArgumentParser) -> None:
    for name, default, what in (
        ("--results", Path("runs"), "folder with the records"),
        ("--out", Path("report"), "folder for the report"),
    ):
        parser.add_argument(
            name, type=_folder, default=default, help=f"{what} (default: %(default)s)"
        )
    parser.add_argument(
        "--scale",
        help=("paper, cpu or smoke (default: for each task, the scale with the most optimizers)"),
    )
    parser.add_argument(
        "--tasks",
        type=_names,
        metavar="NAME,...",
        help=(
            "report only on these tasks; package.module:TASK for your own (default: all the lab's tasks)"
        ),
    )
    parser.add_argument(
        "--no-paper", action="store_true", help="leave out the paper's claims and numbers"
    )


_TASK = "a name, or package.module:TASK for your own"


def _add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", help=_TASK)
    parser.add_argument("--scale", default="cpu", help="paper, cpu or smoke (default: %(default)s)")


def _add_changes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epochs", type=int, help="number of epochs (default: the recipe's)")
    parser.add_argument(
        "--set",
        type=_option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change a recipe option, or its batch_size, clip_norm, precision or schedule",
    )


def _add_optimizers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--optimizers", type=_names, default=["nero"], metavar="NAME,...", help="(default: nero)"
    )


def _add_run_dirs(parser: argparse.ArgumentParser) -> None:
    _add_dirs(parser)
    parser.add_argument(
        "--checkpoint-steps", type=int, default=500, metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument("--no-tensorboard", action="store_true")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _add_dirs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs-dir", type=_folder, default=Path("runs"), help="(default: %(default)s)"
    )
    parser.add_argument("--data-dir", type=_folder, help="(default: $NERO_DATA, or a cache folder)")


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (MemoryError, RecursionError, SyntaxError, TypeError, ValueError):
        return name, value


def _folder(text: str) -> Path:
    if not text:  # a variable that is not set; it would be the working directory
        raise argparse.ArgumentTypeError("the name of the folder is empty")
    return Path(text)


def _add_list_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", nargs="?", help=_TASK)


def _names(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers: 0.01,0.1") from None


_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "list": (
        "list all tasks, or show one task's data, sizes, times and learning rates",
        _add_list_options,
    ),
    "run": ("make one run; resumes if interrupted", _add_run_options),
    "sweep": ("make many runs, on Ray; resumes if interrupted", _add_sweep_options),
    "protocol": (
        "make the protocol's runs, one by one; resumes if interrupted",
        _add_protocol_options,
    ),
    "time": ("time optimizer steps, interleaved", _add_time_options),
    "collect": ("add finished runs to one file per task and scale", _add_collect_options),
    "report": ("make figures and tables from records", _add_report_options),
}
