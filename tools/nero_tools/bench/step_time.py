"""Time one optimizer step: ``python -m nero_tools.bench.step_time --help``."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nero.cli.arguments import output_file
from nero.tables import aligned
from nero_tools.bench.command import add_arguments, make_report, write_report
from nero_tools.bench.competitors import COMPETITORS
from nero_tools.bench.fresh_process import first_step_seconds, resident_temporary_bytes
from nero_tools.bench.targets import verdicts
from nero_tools.progress import progress


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and return an exit code."""
    args = _parser().parse_args(argv)
    # In processes of their own, and before this one fills the memory.
    with progress() as show:
        latency = None
        if args.latency:
            show("first step, cold and from cache")
            latency = first_step_seconds()
        resident: dict[str, dict[str, int | None]] = {}
        for shape in args.shapes if args.device == "cpu" else ():
            for name in (n for n in args.resident if n in args.optimizers):
                show(f"{shape}: peak size of a process in a step of {name}")
                resident.setdefault(shape, {})[name] = resident_temporary_bytes(
                    shape, name, dtype=args.dtype, threads=args.threads[-1]
                )
    report = make_report(args, COMPETITORS)
    extra = {"first_step_seconds": latency, "resident_temporary_bytes": resident}
    report |= {"commit": _commit(), **extra}
    write_report(report, args.json)
    if args.json != "-":
        _print_extra(extra, {r.model: r.parameter_bytes for r in report["results"]})
        targets = verdicts(report)
        if targets:
            header = ["target", "measured", "at most", "met"]
            print("\n" + aligned([header, *(v.cells() for v in targets)]))
    if args.plot:
        from nero_tools.bench.plot import save_chart

        save_chart(report["results"], args.plot)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nero_tools.bench.step_time", description=__doc__
    )
    add_arguments(parser, COMPETITORS)
    parser.add_argument("--plot", type=output_file, metavar="FILE", help="draw a bar chart")
    parser.add_argument(
        "--resident",
        type=lambda text: [name for name in text.split(",") if name],
        default="nero,nero-plain,adamw-fused",
        metavar="NAME,...",
        help="optimizers whose peak process size in a step is measured; '' for none (%(default)s)",
    )
    parser.add_argument(
        "--no-latency", dest="latency", action="store_false", help="do not time first steps"
    )
    return parser


def _print_extra(extra: dict[str, Any], parameter_bytes: dict[str, int]) -> None:
    if extra["resident_temporary_bytes"]:
        rows = [["temporary memory by peak process size", "bytes", "of parameters"]]
        for shape, nums in extra["resident_temporary_bytes"].items():
            for name, num in nums.items():
                share = "-" if num is None else f"{num / parameter_bytes[shape]:.2%}"
                rows.append([f"{shape}, {name}", "-" if num is None else f"{num:,}", share])
        print("\n" + aligned(rows))
    if extra["first_step_seconds"]:
        names = [*extra["first_step_seconds"]["cold"]]
        rows = [["first step in a new process, seconds", *names]]
        for when, spans in extra["first_step_seconds"].items():
            rows.append([when, *(f"{spans[name]:.2f}" for name in names)])
        print("\n" + aligned(rows))


def _commit() -> str | None:
    root = Path(__file__).parents[2]
    if not (
        root / "pyproject.toml"
    ).exists():  # installed, perhaps inside somebody else's repository
        return None
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=root,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
