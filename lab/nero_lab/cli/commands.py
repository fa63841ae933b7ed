"""What each ``nero-lab`` command does. Imports wait until a command needs them."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from nero_lab.cli.arguments import build_parser

_NEEDS = "nero-lab needs packages that are not installed: pip install nero-lab (missing: {})"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ``nero-lab`` command and return its exit code."""
    args = build_parser().parse_args(argv)
    try:
        import nero_lab.tasks  # noqa: F401  # stands for what every command needs
        from nero_lab.engine.errors import ConfigError, DataError
    except ModuleNotFoundError as error:
        print(_NEEDS.format(error.name), file=sys.stderr)
        return 2
    sys.path.insert(0, os.getcwd())  # for optimisers of the user's own
    try:
        return _COMMANDS[args.command](args)
    except (ConfigError, DataError) as error:
        print(f"nero-lab {args.command}: {error}", file=sys.stderr)
        return 2


def _list(args: argparse.Namespace) -> int:
    from nero_lab.cli.listing import print_tasks

    print_tasks()
    return 0


def _run(args: argparse.Namespace) -> int:
    from nero_lab.runner import RunConfig, run

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
    record = run(config, _run_dirs(args))
    if os.environ.get("RANK", "0") == "0":
        print(f"{config.name}: {_ending(config, record)}, records in {args.runs_dir / config.name}")
    return 0


def _ending(config: Any, record: Any) -> str:
    metric = config.task_spec.metric
    if record.status == "diverged":
        return f"diverged: {record.end['message']}"
    best = record.best(metric.name, higher_is_better=metric.higher_is_better)
    return f"{record.status}, {metric.label} {record.last(metric.name):.4g} (best {best:.4g})"


def _sweep(args: argparse.Namespace) -> int:
    from nero_lab.sweep.trials import sweep_command

    return sweep_command(args, _run_dirs(args))


def _report(args: argparse.Namespace) -> int:
    from nero_lab.report import report_command

    return report_command(args)


def _run_dirs(args: argparse.Namespace) -> Any:
    from nero_lab.data.files import default_data_dir
    from nero_lab.runner import RunDirs

    return RunDirs(
        runs_dir=args.runs_dir,
        data_dir=args.data_dir or default_data_dir(),
        checkpoint_steps=args.checkpoint_steps,
        tensorboard=not args.no_tensorboard,
        quiet=args.quiet,
    )


_COMMANDS = {"list": _list, "run": _run, "sweep": _sweep, "report": _report}
