"""Time a whole step of Nero against torch's fused SGD and AdamW, on the parameters of well-known models.

On a GPU, also against Muon, with the self-test of the kernel and what its machine code predicts.
Optimizers take turns on the same weights; steps that other load disturbed are left out. Leave the machine
alone meanwhile.
"""

import argparse
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from nero.cli.arguments import CommandError, add_json_argument, list_of, names_of
from nero.cli.doctor import self_tests, self_tests_text
from nero.cli.environment import environment
from nero.cli.output import print_or_write
from nero.numbers import human_bytes
from nero.tables import aligned
from nero_tools.arguments import add_optimizers_argument, number_between, whole_number
from nero_tools.bench.competitors import QUICK, REFERENCES, Competitor
from nero_tools.bench.gpu.predicted import PREDICTED_MODEL, PREDICTED_MS, predicted_ms
from nero_tools.bench.run import ModelResult, Options, StepResult, measure_model
from nero_tools.bench.timing import Spread
from nero_tools.models import MODELS
from nero_tools.progress import progress

_MAX_THREADS = 4096
_MAX_AMOUNT = 1e6  # of milliseconds or megabytes
DEFAULT_SHAPES = "gpt2-124m,resnet50,mlp-100"


def add_arguments(
    parser: argparse.ArgumentParser, competitors: Mapping[str, Competitor] = QUICK
) -> None:
    """Add the options of ``nero bench``, which ``python -m nero_tools.bench.step_time`` extends."""
    parser.add_argument(
        "--shapes",
        type=names_of(MODELS),
        default=DEFAULT_SHAPES,
        metavar="NAME,...",
        help=f"models whose parameters are stepped: {', '.join(MODELS)} (default: %(default)s)",
    )
    add_optimizers_argument(parser, competitors)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument(
        "--threads",
        type=list_of(whole_number(1, _MAX_THREADS)),
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
    write_report(make_report(args, QUICK), args.json)


def make_report(args: argparse.Namespace, competitors: Mapping[str, Competitor]) -> dict[str, Any]:
    """Measure every model with every number of threads; return what becomes JSON."""
    if args.device == "cuda" and not torch.cuda.is_available():
        raise CommandError("torch finds no CUDA device: use --device cpu")
    chosen = {name: competitors[name] for name in args.optimizers}
    # On a GPU the number of CPU threads hardly matters: once is enough.
    threads = args.threads if args.device == "cpu" else args.threads[-1:]
    evict = {} if args.evict_mb is None else {"evict_bytes": int(args.evict_mb * 2**20)}
    report = {**environment(args.device), "results": []}
    if args.device == "cuda":
        report["self_tests"] = self_tests([torch.device("cuda")], [getattr(torch, args.dtype)])
        report["predicted_ms"] = predicted_ms(report["machine"]["gpu"], args.dtype)
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
    parts = [f"{report['date']}, {machine}\n{versions}", *map(table, report["results"])]
    if "self_tests" in report:
        parts.insert(1, self_tests_text(report["self_tests"]))
        parts.append(_prediction(report["predicted_ms"]))
    print_or_write("\n\n".join(parts), report, path)


def _prediction(ms: float | None) -> str:
    if ms is None:
        return f"no prediction for this GPU; there are predictions for {', '.join(PREDICTED_MS)}"
    return f"predicted from its machine code: {ms:.3g} ms for a step of nero on {PREDICTED_MODEL}"


def table(result: ModelResult) -> str:
    """Return one model's table, fit for a terminal or a mail."""
    steps = result.optimizers
    references = [r for r in REFERENCES if any(r in step.ratios for step in steps.values())]
    header = ["optimizer", "ms", "quartiles", *(f"x {r}" for r in references), "GB/s"]
    rows = [[*header, "state", "temporary", "left out"]]
    rows += [_row(name, s, references, result.parameter_bytes) for name, s in steps.items()]
    threads = f"{result.threads} thread{'s' * (result.threads > 1)}"
    where = threads if result.device == "cpu" else result.device
    lines = [
        f"{result.model}: {result.num_parameters:,} parameters, {result.dtype}, {where}",
        aligned(rows),
    ]
    lines += [
        f"{name} changed only {step.share_changed:.0%} of the weights: its time is meaningless, and "
        "it is not used as a reference"
        for name, step in steps.items()
        if not step.does_the_work
    ]
    disturbed = [n for n, step in steps.items() if step.num_disturbed > step.num_samples / 2]
    if any(step.noisy_milliseconds or any(step.noisy_ratios.values()) for step in steps.values()):
        lines.append(
            "~ noisy: other load disturbed every sample, so this is from disturbed ones; run it again on "
            "an idle machine"
        )
    elif disturbed:
        lines.append(f"other load disturbed most samples of {', '.join(disturbed)}: run it again")
    lines += [f"{name} was not measured: {why}" for name, why in result.left_out.items()]
    return "\n".join(lines)


def _row(name: str, step: StepResult, references: Sequence[str], parameter_bytes: int) -> list[str]:
    ms, flag = step.milliseconds or step.noisy_milliseconds, "" if step.milliseconds else "~"
    bandwidth = step.gigabytes_per_second
    return [
        name,
        "-" if ms is None else f"{flag}{ms.median:{'.3g' if ms.median < 100 else '.0f'}}",
        "-" if ms is None else f"{flag}{ms.low:.3g} to {ms.high:.3g}",
        *(_ratio(step.ratios.get(r), step.noisy_ratios.get(r)) for r in references),
        "-" if bandwidth is None else f"{flag}{bandwidth:.3g}",
        human_bytes(step.state_bytes),
        f"{step.temporary_bytes / parameter_bytes:.2%}",
        f"{step.num_disturbed}/{step.num_samples}",
    ]


def _ratio(calm: Spread | None, noisy: Spread | None) -> str:
    ratio, flag = calm or noisy, "" if calm else "~"
    if ratio is None:
        return "-"
    return f"{flag}{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _non_negative(text: str) -> float:
    return number_between(text, 0.0, _MAX_AMOUNT, f"a number from 0 to {_MAX_AMOUNT:.0e}")
