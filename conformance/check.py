"""Check an implementation of Nero against the vectors beside this file.

    python conformance/check.py conformance.nero_torch:run            # this library's own adapter
    python conformance/check.py my_package.adapter:run --tolerance 1e-5

The adapter is a function that takes one case (see README.md for its fields) and returns what its
optimizer holds after construction and after every step: a list of mappings with the keys ``weight``,
``average``, ``step`` and ``num_skipped``. Needs Python's standard library only.
"""

import argparse
import importlib
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

Case: TypeAlias = dict[str, Any]
Snapshot: TypeAlias = Mapping[str, Any]
Adapter: TypeAlias = Callable[[Case], Sequence[Snapshot]]

VECTORS = Path(__file__).parent / "vectors"
SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def load_cases(folder: Path = VECTORS) -> list[Case]:
    """Read every case, with non-finite gradients as floats."""
    cases = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    for case in cases:
        case["gradients"] = [
            None if grad is None else [SPECIAL.get(g, g) for g in grad]
            for grad in case["gradients"]
        ]
    return cases


def check_case(
    case: Case, snapshots: Sequence[Snapshot], tolerance: float | None = None
) -> str | None:
    """Compare what an implementation did with what it should do; return the first difference."""
    expected = case["expected"]
    tolerance = case["tolerance"] if tolerance is None else tolerance
    if len(snapshots) != len(expected):
        return f"{len(snapshots)} snapshots, expected {len(expected)}"
    for index, (ours, theirs) in enumerate(zip(expected, snapshots, strict=True)):
        when = "after construction" if index == 0 else f"after step {index}"
        for key in ("step", "num_skipped"):
            if theirs[key] != ours[key]:
                return f"{when}: {key} is {theirs[key]}, expected {ours[key]}"
        for key, smallest in (("weight", 1.0), ("average", 0.0)):  # averages are relative
            problem = _first_difference(ours[key], theirs[key], tolerance, smallest)
            if problem:
                return f"{when}: {key}{problem}"
    return None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checker and return its exit code: 0 if every case agrees."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("adapter", metavar="MODULE:FUNCTION")
    parser.add_argument("--tolerance", type=float, help="instead of each case's own, for float32")
    args = parser.parse_args(argv)
    sys.path.insert(0, os.getcwd())
    module, _, function = args.adapter.partition(":")
    adapter: Adapter = getattr(importlib.import_module(module), function)

    failed = 0
    cases = load_cases()
    for case in cases:
        problem = check_case(case, adapter(case), args.tolerance)
        failed += problem is not None
        print(f"{'FAIL' if problem else 'ok  '}  {case['name']}{': ' + problem if problem else ''}")
    print(f"\n{len(cases) - failed} of {len(cases)} cases agree")
    return 1 if failed else 0


def _first_difference(
    ours: list[float], theirs: Sequence[float], tolerance: float, smallest: float
) -> str | None:
    if len(ours) != len(theirs):
        return f" has {len(theirs)} numbers, expected {len(ours)}"
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not abs(a - b) <= tolerance * max(smallest, abs(a)):
            return f"[{i}] is {b!r}, expected {a!r}"
    return None


if __name__ == "__main__":
    sys.exit(main())
