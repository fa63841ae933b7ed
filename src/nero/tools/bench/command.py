"""Time a whole step of Nero against torch's fused SGD and AdamW, on the parameters of well-known models.

Optimisers take turns on the same weights; steps that other load disturbed are left out. Leave the machine
alone meanwhile.
"""

import argparse
import itertools
import sys
from collections.abc import Mapping
from typing import Any

import torch

from nero.tools.arguments import (
    CommandError,
    add_json_argument,
    list_of,
    names_of,
    number_between,
    whole_number,
)
from nero.tools.bench.competitors import COMPETITORS, Competitor
from nero.tools.bench.report import table
from nero.tools.bench.run import Options, measure_model
from nero.tools.environment import environment
from nero.tools.models import MODELS
from nero.tools.output import print_or_write, progress

DEFAULT_SHAPES = "gpt2-124m,resnet50,mlp-100"


def add_arguments(
    parser: argparse.ArgumentParser, competitors: Mapping[str, Competitor] = COMPETITORS
) -> None:
    """Add the options of ``nero bench``, which ``python -m benchmarks.step_time`` extends."""
    parser.add_argument(
        "--shapes",
        type=names_of(MODELS),
        default=DEFAULT_SHAPES,
        metavar="NAME,...",
        help=f"models whose parameters are stepped: {', '.join(MODELS)} (default: %(default)s)",
    )
    parser.add_argument(
        "--optimizers",
        type=names_of(competitors),
        default=",".join(competitors),
        metavar="NAME,...",
        help="optimisers to compare (default: %(default)s)",
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument(
        "--threads",
        type=list_of(whole_number(1)),
        default=str(torch.get_num_threads()),
        metavar="N,...",
        help="numbers of CPU threads to measure with (default: torch's, %(default)s)",
    )
    parser.add_argument(
        "--rounds",
        type=whole_number(1),
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


def run(args: argparse.Namespace) -> None:
    """Run ``nero bench``.

    Raises:
        CommandError: if torch sees no such device.
    """
    write_report(make_report(args, COMPETITORS), args.json)


def make_report(args: argparse.Namespace, competitors: Mapping[str, Competitor]) -> dict[str, Any]:
    """Measure every model with every number of threads; return what becomes JSON."""
    if args.device == "cuda" and not torch.cuda.is_available():
        raise CommandError("torch sees no CUDA device")
    chosen = {name: competitors[name] for name in args.optimizers}
    # On a GPU the number of CPU threads hardly matters: once is enough.
    threads = args.threads if args.device == "cpu" else args.threads[-1:]
    evict = {} if args.evict_mb is None else {"evict_bytes": int(args.evict_mb * 2**20)}
    report = {**environment(args.device), "results": []}
    for name, num in itertools.product(args.shapes, threads):
        options = Options(
            dtype=getattr(torch, args.dtype),
            device=args.device,
            threads=num,
            rounds=args.rounds,
            settle_seconds=args.settle_ms / 1000,
            **evict,
        )
        with progress(f"{name}, {num} threads") as show:
            result = measure_model(name, MODELS[name], chosen, options, on_progress=show)
        report["results"].append(result)
    return report


def write_report(report: dict[str, Any], path: str | None) -> None:
    """Print the tables below a line about the machine, or write JSON: see `print_or_write`."""
    machine = report["machine"]["gpu"] or report["machine"]["cpu"]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    heading = f"{report['date']}, {machine}\n{versions}"
    print_or_write("\n\n".join([heading, *map(table, report["results"])]), report, path)


def _non_negative(text: str) -> float:
    return number_between(text, 0.0, sys.float_info.max, "a finite number that is 0 or more")
