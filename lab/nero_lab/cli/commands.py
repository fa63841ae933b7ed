"""What each ``nero-lab`` command does. Imports wait until a command needs them."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from nero_lab.cli.arguments import parse

_NEEDS = "packages are not installed: pip install nero-lab (missing: {})"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ``nero-lab`` command and return its exit code.

    0: done. 1: a run failed. 2: the request is invalid. 130: interrupted with Ctrl-C.
    """
    args = parse(argv)
    try:
        return _call(args)
    except KeyboardInterrupt:
        again = (
            "; repeat the command to resume" if args.command in ("run", "sweep", "protocol") else ""
        )
        return _refuse(args, f"interrupted{again}", code=130)


def _call(args: argparse.Namespace) -> int:
    try:
        import nero_lab.tasks  # noqa: F401  # stands for what every command needs
        from nero_lab.engine.errors import ConfigError, DataError
    except ModuleNotFoundError as error:
        return _refuse(args, _NEEDS.format(error.name))
    sys.path.insert(0, os.getcwd())  # for optimizers of the user's own
    try:
        return _COMMANDS[args.command](args)
    except (ConfigError, DataError) as error:
        return _refuse(args, str(error))
    except OSError as error:  # a full disk, a folder that is not ours
        return _refuse(args, str(error), code=1)


def _refuse(args: argparse.Namespace, message: str, *, code: int = 2) -> int:
    print(f"nero-lab {args.command}: {' '.join(message.split())}", file=sys.stderr)
    return code


def _list(args: argparse.Namespace) -> int:
    from nero_lab.cli.listing import print_task, print_tasks
    from nero_lab.tasks import find_task

    if args.task is None:
        print_tasks()
    else:
        print_task(find_task(args.task))
    return 0


def _run(args: argparse.Namespace) -> int:
    from nero_lab.engine.errors import ConfigError, DataError, in_one_line
    from nero_lab.runner import run

    config = _config(args, args.optimizer, lr=args.lr, seed=args.seed)
    try:
        record = run(config, _run_dirs(args))
    except (ConfigError, DataError, OSError):
        raise
    except Exception as error:
        return _refuse(args, f"failed: {in_one_line(error)}{_traceback(args, config)}", code=1)
    if os.environ.get("RANK", "0") == "0":
        print(f"{config.name}: {_ending(config, record)}, records in {args.runs_dir / config.name}")
    return 0


def _traceback(args: argparse.Namespace, config: Any) -> str:
    """Say where the traceback of a failed run is, if it was recorded."""
    from nero_lab.engine import records

    path = args.runs_dir / config.name / records.FILE_NAME
    record = records.read(path) if path.exists() else None
    return f"; its traceback is in {path}" if record and record.status == "failed" else ""


def _ending(config: Any, record: Any) -> str:
    metric = config.task_spec.metric
    if record.status in ("diverged", "stopped"):
        return f"{record.status}: {record.end['message']}"
    best = record.best(metric.name, higher_is_better=metric.higher_is_better)
    return f"{record.status}, {metric.label} {record.last(metric.name):.4g} (best {best:.4g})"


def _sweep(args: argparse.Namespace) -> int:
    from nero_lab.sweep.trials import sweep_command

    return sweep_command(args, _run_dirs(args))


def _protocol(args: argparse.Namespace) -> int:
    from nero_lab.protocol.queue import protocol_command

    return protocol_command(args, _run_dirs(args))


def _time(args: argparse.Namespace) -> int:
    from nero_lab.engine.errors import ConfigError
    from nero_lab.runner.timing import time_steps, write_times

    if args.rounds < 2:
        raise ConfigError(f"--rounds must be at least 2, not {args.rounds}")
    configs = [_config(args, optimizer) for optimizer in args.optimizers]
    times = time_steps(configs, _data_dir(args), num_rounds=args.rounds, max_load=args.max_load)
    path = write_times(times, args.runs_dir)
    for optimizer, (low, median, high) in times["seconds"].items():
        print(
            f"{optimizer}: {1e3 * median:.1f} ms per step (quartiles {1e3 * low:.1f} to {1e3 * high:.1f})"
        )
    print(f"wrote {path}")
    return 0


def _collect(args: argparse.Namespace) -> int:
    from nero_lab.engine.folders import check_can_be_made
    from nero_lab.engine.results import collect

    check_can_be_made(args.results, option="--results")
    found = collect(args.runs_dir, args.results)
    print(
        f"added {found.num_added} runs to {args.results}; "
        f"already there: {found.num_there}, unfinished: {found.num_unfinished}"
    )
    return 0


def _report(args: argparse.Namespace) -> int:
    from nero_lab.engine.folders import check_can_be_made
    from nero_lab.report import report_command
    from nero_lab.tasks import TASKS, find_task, without_paper

    check_can_be_made(args.out, option="--out")
    tasks = {name: find_task(name) for name in args.tasks or TASKS}
    if args.no_paper:
        tasks = {name: without_paper(task) for name, task in tasks.items()}
    return report_command(args, tasks)


def _config(args: argparse.Namespace, optimizer: str, **more: Any) -> Any:
    """Return the run of one optimizer that the arguments ask for."""
    from nero_lab.runner import RunConfig

    return RunConfig(
        task=args.task,
        scale=args.scale,
        optimizer=optimizer,
        variant=args.variant,
        options=dict(args.set),
        epochs=args.epochs,
        **more,
    )


def _data_dir(args: argparse.Namespace) -> Any:
    from nero_lab.data.files import default_data_dir

    return args.data_dir or default_data_dir()


def _run_dirs(args: argparse.Namespace) -> Any:
    from nero_lab.runner import RunDirs

    return RunDirs(
        runs_dir=args.runs_dir,
        data_dir=_data_dir(args),
        checkpoint_steps=args.checkpoint_steps,
        tensorboard=not args.no_tensorboard,
        quiet=args.quiet,
    )


_COMMANDS = {
    "list": _list,
    "run": _run,
    "sweep": _sweep,
    "protocol": _protocol,
    "time": _time,
    "collect": _collect,
    "report": _report,
}
