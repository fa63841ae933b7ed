"""The queue: make the runs of the plan one after another, each in its own process.

All state is in the run folders, so repeating the command resumes the queue. The next run is chosen after
each run has finished, because the best rate so far decides which rates and seeds follow.
"""

import argparse
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from nero_lab.engine import checkpoint
from nero_lab.engine.errors import ConfigError, in_one_line
from nero_lab.engine.records import RunRecord
from nero_lab.engine.results import lay_out
from nero_lab.protocol.plan import PLAN, Comparison
from nero_lab.protocol.wanted import Wanted, too_far_behind, wanted
from nero_lab.runner.config import RunConfig
from nero_lab.runner.execute import RunDirs, run
from nero_lab.runner.history import existing_record
from nero_lab.tasks import TASKS

Say = Callable[[str], None]


def protocol_command(args: argparse.Namespace, dirs: RunDirs) -> int:
    """Make the runs that ``nero-lab protocol`` asks for, and return the exit code: 1 if any failed."""
    plan = _selected(args.only, args.scale)
    dirs = replace(dirs, tensorboard=False, quiet=True)
    if args.results is not None:
        lay_out(args.results, dirs.runs_dir, scale=args.scale)
    if args.list:
        for line in status_lines(plan, args.scale, dirs):
            print(line)
        return 0
    deadline = time.monotonic() + 60 * args.minutes if args.minutes is not None else None
    failed = make_runs(plan, args.scale, dirs, say=_print_with_time, deadline=deadline)
    for name, why in failed.items():
        print(f"{name} failed: {why}")
    return 1 if failed else 0


def make_runs(
    plan: Sequence[Comparison],
    scale: str,
    dirs: RunDirs,
    *,
    say: Say = print,
    deadline: float | None = None,
) -> dict[str, str]:
    """Make every run of a plan that is not done, and return why those failed that did, by name.

    Args:
        plan: the comparisons, in order.
        scale: of all runs.
        dirs: where to read and write.
        say: receives a line for every run.
        deadline: by ``time.monotonic``; no run begins after it.
    """
    failed: dict[str, str] = {}
    while (item := next_run(plan, scale, dirs, failed)) is not None:
        if deadline is not None and time.monotonic() > deadline:
            say("time is up")
            break
        config, began = item.config, time.monotonic()
        why = _in_own_process(item, dirs)
        record = existing_record(config, dirs.runs_dir)
        if record is None or not record.is_done:
            failed[config.name] = why or "its process died"
            say(f"{config.name}: failed: {failed[config.name]}")
            continue
        # It is done, so nothing will resume it.
        (dirs.runs_dir / config.name / checkpoint.FILE_NAME).unlink(missing_ok=True)
        say(f"{config.name}: {_ending(config, record)}, {time.monotonic() - began:.0f} s")
    return failed


def next_run(
    plan: Sequence[Comparison], scale: str, dirs: RunDirs, failed: dict[str, str]
) -> Wanted | None:
    """Return the first run of a plan that is neither done nor failed, if there is one."""
    for comparison in plan:
        for item in wanted(comparison, scale, _finder(dirs)):
            record = existing_record(item.config, dirs.runs_dir)
            if item.config.name not in failed and not (record and record.is_done):
                return item
    return None


def status_lines(plan: Sequence[Comparison], scale: str, dirs: RunDirs) -> Iterator[str]:
    """Yield a line for every comparison: how many of the runs that it needs, as far as known, are done."""
    for comparison in plan:
        statuses: Counter[str] = Counter()
        for item in wanted(comparison, scale, _finder(dirs)):
            record = existing_record(item.config, dirs.runs_dir)
            statuses[record.status if record else "to do"] += 1
        shown = ", ".join(f"{count} {status}" for status, count in statuses.items())
        yield f"{comparison.key}: {shown}"


def _selected(only: Sequence[str] | None, scale: str) -> list[Comparison]:
    """Return the comparisons whose keys begin with one of the given names, of tasks with that scale."""
    found = [c for c in PLAN if only is None or any(c.key.startswith(name) for name in only)]
    if not found:
        keys = ", ".join(comparison.key for comparison in PLAN)
        raise ConfigError(f"unknown comparison {', '.join(only or ())}; choose from: {keys}")
    lacking = {c.task for c in found if scale not in TASKS[c.task].recipes}
    if lacking:
        raise ConfigError(f"there is no scale {scale!r} for {', '.join(sorted(lacking))}")
    return found


def _finder(dirs: RunDirs) -> Callable[[RunConfig], RunRecord | None]:
    return lambda config: existing_record(config, dirs.runs_dir)


def _in_own_process(item: Wanted, dirs: RunDirs) -> str:
    """Make a run in a process of its own, and return why it failed, or "".

    The process gives its memory back. A server that has loaded torch, but never computed, forks it: a
    fork of a process whose threads have computed may wait for them forever.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["nero_lab.runner.execute"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(item, dirs, sender))
    process.start()
    sender.close()
    try:
        process.join()
        return str(receiver.recv()) if receiver.poll() else ""
    except EOFError:
        return f"its process exited with code {process.exitcode}"
    finally:
        if process.is_alive():  # interrupted from the keyboard
            process.terminate()
            process.join()


def _child(item: Wanted, dirs: RunDirs, sender: Any) -> None:
    try:
        others = (_finder(dirs)(other) for other in item.beside)
        run(item.config, dirs, stop=too_far_behind(item.config, others))
    except Exception as error:
        sender.send(in_one_line(error))


def _ending(config: RunConfig, record: RunRecord) -> str:
    metric = config.task_spec.metric.name
    if record.status != "finished":
        assert record.end is not None
        return f"{record.status}: {record.end['message']}"
    return f"{metric} {record.last(metric):.4g}"


def _print_with_time(line: str) -> None:
    print(f"{datetime.now(timezone.utc):%H:%M:%S} {line}", flush=True)
