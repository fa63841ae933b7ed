"""Say what Nero runs on here: versions, backends and why not others, the self-test of the GPU kernel.

The self-test is run anew, whatever the cache says, and printed whole.
"""

import argparse
import os
from typing import Any

import torch

from nero.backends import cpu, triton
from nero.backends.triton.launch import Variant
from nero.backends.triton.selftest import Difference, device_name, self_test
from nero.backends.triton.trust import cache_folder
from nero.cli.arguments import add_json_argument, names_of
from nero.cli.environment import environment
from nero.cli.output import print_or_write
from nero.core.precision import working_dtype
from nero.tables import aligned

_DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")}
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``nero doctor``."""
    parser.add_argument(
        "--dtypes",
        type=names_of(_DTYPES),
        default="float32,bfloat16",
        metavar="NAME,...",
        help=f"dtypes to test the GPU kernel in, of {', '.join(_DTYPES)} (default: %(default)s)",
    )
    add_json_argument(parser)


def run(args: argparse.Namespace) -> None:
    """Print what was found, or write it as JSON."""
    found = diagnosis([_DTYPES[name] for name in args.dtypes])
    print_or_write(text(found), found, args.json)


def diagnosis(dtypes: list[torch.dtype]) -> dict[str, Any]:
    """Return everything as JSON can hold it."""
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
    """Test the kernel in all its variants, on those devices that it runs on."""
    return [
        self_test(Variant(device, dtype, stochastic, momentum, shared)).as_dict()
        for device in devices
        if triton.why_not_device(device) is None
        for dtype in dtypes
        for stochastic in ((False, True) if dtype.itemsize == 2 else (False,))
        for momentum in (None, working_dtype(dtype), torch.bfloat16)
        for shared in (False, True)
    ]


def text(found: dict[str, Any]) -> str:
    """Return a diagnosis as people read it."""
    lines = [", ".join(f"{name} {version}" for name, version in found["versions"].items())]
    lines += [f"{found['machine']['cpu']}, {found['machine']['platform']}"]
    lines += ["threads: " + ", ".join(f"{key} {value}" for key, value in found["threads"].items())]
    lines += [f"cache: {found['cache']}", ""]
    backends = [["backend", "here"], *map(list, found["backends"].items())]
    lines += [aligned(backends, left=(0, 1)), ""]
    return "\n".join([*lines, self_tests_text(found["self_tests"])])


def self_tests_text(tests: list[dict[str, Any]]) -> str:
    """Return a table of self-tests, and below it every number that differed."""
    if not tests:
        return "self-test of the Triton kernel: not run, since it has no device here"
    rows = [["self-test", "dtype", "rounding", "momentum", "step", "cases", "seconds", "result"]]
    for test in tests:
        rounding = "stochastic" if test["stochastic"] else "to nearest"
        result = "passed" if test["passed"] else test["error"] or "failed"
        step = "in halves" if test["shared"] else "whole"
        shown = [test["device"], test["dtype"], rounding, test["momentum"] or "no", step]
        rows.append([*shown, str(test["num_cases"]), f"{test['seconds']:.2f}", result])
    lines = [aligned(rows, left=(0, 1, 2, 3, 4, 7))]
    for test in tests:
        for each in test["differences"]:
            difference = Difference(**each)
            lines.append(
                f"{test['dtype']}, {difference.case}, {difference.tensor}: {difference.counted}"
            )
    return "\n".join(lines)


def _devices() -> list[torch.device]:
    """Return the devices that the kernel is meant for; with Triton's interpreter, the CPU."""
    found = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
    is_interpreted = triton.why_not_device(torch.device("cpu")) is None
    return [*found, *[torch.device("cpu")] * is_interpreted]
