"""Show what Nero runs on here: versions, which backends run or why not, and a self-test of the GPU kernel.

The self-test always runs, regardless of cached results, and is printed in full.
"""

import argparse
import os
from typing import Any

import torch

from nero.backends import cpu, triton
from nero.backends.triton.launch import Variant
from nero.backends.triton.selftest import Difference, device_name, self_test
from nero.backends.triton.table import kept_lengths
from nero.backends.triton.trust import cache_folder
from nero.cli.arguments import add_json_argument, names_of
from nero.cli.environment import environment
from nero.cli.output import print_or_write
from nero.core.precision import working_dtype
from nero.tables import aligned

_DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")}
_CHECK = """\
To check your own run, put its first steps into a check. It reads the model under DDP, FSDP2, tensor or
expert parallelism, compares every neuron with Algorithm 1 in float64, and names parameters that are wrong:

    from nero.diagnostics import StepCheck
    check = StepCheck(model, optimizer)
    loss.backward()
    with check:
        optimizer.step()"""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``nero doctor``."""
    parser.add_argument(
        "--dtypes",
        type=names_of(_DTYPES),
        default="float32,bfloat16",
        metavar="NAME,...",
        help=f"dtypes in which to test the GPU kernel: {', '.join(_DTYPES)} (default: %(default)s)",
    )
    add_json_argument(parser)


def run(args: argparse.Namespace) -> None:
    """Print the diagnosis, or write it as JSON."""
    result = diagnosis([_DTYPES[name] for name in args.dtypes])
    print_or_write(text(result), result, args.json)


def diagnosis(dtypes: list[torch.dtype]) -> dict[str, Any]:
    """Return everything as JSON values."""
    devices = _devices()
    return {
        **environment("cuda" if torch.cuda.is_available() else "cpu"),
        "threads": {
            "torch": torch.get_num_threads(),
            **{name: os.environ[name] for name in _THREADS if name in os.environ},
        },
        "cache": str(cache_folder()),
        "backends": {
            "plain": "runs everywhere",
            "cpu": cpu.missing() or "runs",
            **{f"triton on {device_name(d)}": triton.why_not_device(d) or "runs" for d in devices},
        },
        "self_tests": self_tests(devices, dtypes),
    }


def self_tests(devices: list[torch.device], dtypes: list[torch.dtype]) -> list[dict[str, Any]]:
    """Test all variants of the kernel on the devices that can run it."""
    return [
        self_test(variant._replace(kept=kept)).as_dict()
        for device in devices
        if triton.why_not_device(device) is None
        for dtype in dtypes
        for stochastic in ((False, True) if dtype.itemsize == 2 else (False,))
        for momentum in (None, working_dtype(dtype), torch.bfloat16)
        for shared in (False, True)
        for variant in (Variant(device, dtype, stochastic, momentum, shared),)
        for kept in (0, *_kept(variant))
    ]


def _kept(variant: Variant) -> tuple[int, ...]:
    """Return the lengths of long rows to test; the interpreter takes too long for them."""
    if variant.shared or variant.device.type == "cpu":
        return ()
    return kept_lengths(variant.dtype, stochastic=variant.stochastic, momentum=variant.momentum)


def text(result: dict[str, Any]) -> str:
    """Return a diagnosis as readable text."""
    lines = [", ".join(f"{name} {version}" for name, version in result["versions"].items())]
    lines += [f"{result['machine']['cpu']}, {result['machine']['platform']}"]
    threads = ", ".join(f"{key} {value}" for key, value in result["threads"].items())
    lines += [f"threads: {threads}", f"cache: {result['cache']}", ""]
    backends = [["backend", "here"], *map(list, result["backends"].items())]
    lines += [aligned(backends, left=(0, 1)), ""]
    return "\n".join([*lines, self_tests_text(result["self_tests"]), "", _CHECK])


def self_tests_text(tests: list[dict[str, Any]]) -> str:
    """Return a table of self-tests, followed by every number that differed."""
    if not tests:
        return "self-test of the Triton kernel: not run, since it has no device here"
    rows = [["self-test", "dtype", "rounding", "momentum", "step", "cases", "seconds", "result"]]
    for test in tests:
        rounding = "stochastic" if test["stochastic"] else "to nearest"
        result = "passed" if test["passed"] else test["error"] or "failed"
        step = "in halves" if test["shared"] else "whole"
        if test.get("kept"):  # absent from files of earlier versions
            step += f", rows of {test['kept']}"
        shown = [test["device"], test["dtype"], rounding, test["momentum"] or "no", step]
        rows.append([*shown, str(test["num_cases"]), f"{test['seconds']:.2f}", result])
    lines = [aligned(rows, left=(0, 1, 2, 3, 4, 7))]
    for test in tests:
        for difference in [Difference(**fields) for fields in test["differences"]]:
            lines.append(
                f"{test['dtype']}, {difference.case}, {difference.tensor}: {difference.counted}"
            )
    return "\n".join(lines)


def _devices() -> list[torch.device]:
    """Return all GPUs, and the CPU if Triton's interpreter runs there."""
    gpus = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
    is_interpreted = triton.why_not_device(torch.device("cpu")) is None
    return [*gpus, *[torch.device("cpu")] * is_interpreted]
