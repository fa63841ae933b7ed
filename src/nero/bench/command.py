"""The options of ``nero bench``, which ``python -m benchmarks.step_time`` extends."""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nero.arguments import number_between, output_file
from nero.bench.models import MODELS
from nero.bench.report import Report, environment
from nero.bench.rivals import RIVALS, Rival
from nero.bench.run import Options, measure_model

DEFAULT_SHAPES = "gpt2-124m,resnet50,mlp-100"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def add_arguments(
    parser: argparse.ArgumentParser,
    *,
    models: Mapping[str, Callable[[], nn.Module]] = MODELS,
    rivals: Mapping[str, Rival] = RIVALS,
) -> None:
    """Add the options that every timing of steps has."""
    parser.add_argument(
        "--shapes",
        type=names_of(models),
        default=DEFAULT_SHAPES,
        metavar="NAME,...",
        help=f"models whose parameters are stepped: {', '.join(models)} (default: %(default)s)",
    )
    parser.add_argument(
        "--rivals",
        type=names_of(rivals),
        default=",".join(rivals),
        metavar="NAME,...",
        help="who competes (default: %(default)s)",
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=[*_DTYPES])
    parser.add_argument(
        "--threads",
        type=_counts,
        default=str(torch.get_num_threads()),
        metavar="N,...",
        help="numbers of CPU threads to measure with (default: torch's, %(default)s)",
    )
    parser.add_argument(
        "--rounds",
        type=_count,
        default=15,
        metavar="N",
        help="undisturbed samples wanted (%(default)s)",
    )
    parser.add_argument(
        "--settle-ms",
        type=_non_negative,
        default=20.0,
        metavar="MS",
        help="rest before each step, in which OpenMP's threads stop spinning (%(default)s)",
    )
    parser.add_argument(
        "--evict-mb",
        type=_non_negative,
        metavar="MB",
        help="memory read before each step to empty the caches (default: 5/4 of the last cache)",
    )
    add_json_argument(parser)


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option that `print_or_write` obeys."""
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        type=output_file,
        metavar="FILE",
        help="write JSON to FILE; without FILE, print it instead of the tables",
    )


def run_command(args: argparse.Namespace) -> int:
    """Run ``nero bench`` and return its exit code."""
    if args.device == "cuda" and not torch.cuda.is_available():
        print("nero bench: torch sees no CUDA device", file=sys.stderr)
        return 2
    report = make_report(args, models=MODELS, rivals=RIVALS)
    write_report(report, args.json)
    return 0


def make_report(
    args: argparse.Namespace,
    *,
    models: Mapping[str, Callable[[], nn.Module]],
    rivals: Mapping[str, Rival],
) -> Report:
    """Measure every model with every number of threads."""
    report = Report(environment(args.device))
    with progress() as tell:
        for name in args.shapes:
            for options in _options(args):
                where = f"{name}, {options.threads} threads" if args.device == "cpu" else name
                report.results.append(
                    measure_model(
                        name,
                        models[name],
                        {rival: rivals[rival] for rival in args.rivals},
                        options,
                        on_progress=lambda what, where=where: tell(f"{where}: {what}"),  # type: ignore[misc]
                    )
                )
    return report


def write_report(report: Report, path: str | None) -> None:
    """Print the tables below a line about the machine, or write JSON: see `print_or_write`."""
    env = report.environment
    machine = env["machine"]["gpu"] or env["machine"]["cpu"]
    versions = ", ".join(f"{name} {version}" for name, version in env["versions"].items())
    text = f"{env['date']}, {machine}\n{versions}\n\n{report.tables()}"
    print_or_write(text, report.as_dict(), path)


def print_or_write(text: str, figures: dict[str, Any], path: str | None) -> None:
    """Print ``text``, or the figures as JSON where ``path`` is ``-``; write JSON to any other path."""
    packed = json.dumps(figures, indent=2)
    if path == "-":
        print(packed)
        return
    print(text)
    if path is not None:
        Path(path).write_text(packed + "\n")


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a line of progress on stderr, where someone is looking.

    It draws only when it is called, between steps: a display that refreshed itself would run during them.
    """
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner
    except ModuleNotFoundError:
        if sys.stderr.isatty():
            yield lambda text: print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        else:
            yield lambda _: None
        return
    spinner = Spinner("dots")
    console = Console(stderr=True)
    with Live(spinner, console=console, auto_refresh=False, transient=True) as live:

        def tell(text: str) -> None:
            spinner.update(text=text)
            live.refresh()

        yield tell


def _options(args: argparse.Namespace) -> Iterator[Options]:
    # On a GPU the number of CPU threads hardly matters: once is enough.
    threads = args.threads if args.device == "cpu" else args.threads[-1:]
    evict = {} if args.evict_mb is None else {"evict_bytes": int(args.evict_mb * 2**20)}
    for num in threads:
        yield Options(
            dtype=_DTYPES[args.dtype],
            device=args.device,
            threads=num,
            rounds=args.rounds,
            settle_seconds=args.settle_ms / 1000,
            **evict,
        )


def names_of(known: Mapping[str, object]) -> Callable[[str], list[str]]:
    """Return what reads ``NAME,...`` from a command line, and refuses what is not ``known``."""

    def names(text: str) -> list[str]:
        chosen = [name.strip() for name in text.split(",")]
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return list(dict.fromkeys(chosen))

    return names


def _non_negative(text: str) -> float:
    return number_between(text, 0.0, sys.float_info.max, "a finite number that is 0 or more")


def _counts(text: str) -> list[int]:
    return [_count(part) for part in text.split(",")]


def _count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)
