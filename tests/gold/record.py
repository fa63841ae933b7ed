"""Record what this version of the package computes, case by case and bit by bit.

    python -m tests.gold.record --out DIR [--only PATTERN] [--threads N]

writes ``hashes.json`` (case -> tensor name -> sha256) and ``tensors.pt`` (the tensors themselves). Record
two versions on one machine, then run `tests.gold.compare`. Another checkout is recorded by putting its
``src`` first on ``PYTHONPATH``. With ``--only``, cases that the folder holds already are replaced.

    python -m tests.gold.record --statistics tests/gold/record.json

writes the small record that `test_gold.py` holds every machine to.
"""

import argparse
import fnmatch
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

import nero
from tests.gold.cases import COMPILED, EAGER, INTERPRETER
from tests.gold.statistics_of import summary
from tests.gold.trajectory import SHORT

Tensors: TypeAlias = dict[str, dict[str, Tensor]]
"""Case -> tensor name -> tensor."""
FAST_INTERPRETER = "interpreter, embedding first, float32"
"""The one case of the interpreter that is fast enough for the tests."""


def record(only: str = "*") -> Iterator[Tensors]:
    """Run every case whose name matches ``only``, in stages."""
    yield run_cases(_matching(EAGER, only))
    if _matching(INTERPRETER, only):
        yield run_in_interpreter(only)
    yield run_cases(_matching(COMPILED, only))
    from tests.gold.sharded import SHARDED, run_on_ranks

    sharded = [SHARDED[name] for name in _matching(SHARDED, only)]
    for world_size in sorted({case.world_size for case in sharded}):
        start = time.perf_counter()
        yield run_on_ranks([case for case in sharded if case.world_size == world_size])
        print(f"{time.perf_counter() - start:6.1f} s  all cases on {world_size} ranks", flush=True)


def run_cases(names: Iterable[str], steps: range | None = None) -> Tensors:
    """Run cases in this process; those that need a package that is not installed are left out."""
    found: Tensors = {}
    for name in names:
        case = (EAGER | INTERPRETER | COMPILED)[name]
        if case.missing:
            print(f"skipped, for want of {case.missing}: {name}")
            continue
        start = time.perf_counter()
        found[name] = case.run(steps)
        print(f"{time.perf_counter() - start:6.1f} s  {name}", flush=True)
    return found


def run_in_interpreter(only: str = "*") -> Tensors:
    """Run the cases of Triton's interpreter in a process of their own, started with it on."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--out", folder, "--only", only, "--interpreter-only"]
        subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.gold.record", *options],
            env={**os.environ, "TRITON_INTERPRET": "1"},
            cwd=Path(__file__).parents[2],
            check=True,
        )
        return load_tensors(folder)


def load_tensors(folder: str | Path) -> Tensors:
    """Read back the tensors of a record."""
    tensors: Tensors = torch.load(Path(folder, "tensors.pt"))
    return tensors


def digest(tensor: Tensor) -> str:
    """Return the sha256 of a tensor's dtype, shape and bytes; every NaN counts as the same."""
    if tensor.is_floating_point():
        tensor = torch.where(tensor.isnan(), torch.nan, tensor)
    summed = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    summed.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return summed.hexdigest()


def save(folder: Path, found: Tensors) -> None:
    """Write the hashes and the tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    hashes = {
        case: {name: digest(tensor) for name, tensor in tensors.items()}
        for case, tensors in found.items()
    }
    Path(folder, "hashes.json").write_text(json.dumps(hashes, indent=1) + "\n")
    torch.save(found, Path(folder, "tensors.pt"))


def save_statistics(path: Path, found: Tensors) -> None:
    """Write a few numbers per tensor, one case per line."""
    lines = [
        f"{json.dumps(case)}: " + json.dumps(summary(tensors), separators=(",", ":"))
        for case, tensors in found.items()
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _matching(cases: Iterable[str], pattern: str) -> list[str]:
    return [name for name in cases if fnmatch.fnmatchcase(name, pattern)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="folder of the record")
    parser.add_argument("--statistics", type=Path, help="file of the small record for the tests")
    parser.add_argument("--only", default="*", help="pattern of case names, such as 'kernel, *'")
    parser.add_argument("--threads", type=int, help="torch's threads outside sharded cases")
    parser.add_argument("--interpreter-only", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
        os.environ["OMP_NUM_THREADS"] = str(args.threads)
    print(f"nero from {Path(nero.__file__).parent}, {torch.get_num_threads()} threads", flush=True)
    if args.interpreter_only:
        save(args.out, run_cases(_matching(INTERPRETER, args.only)))
    elif args.statistics:
        found = run_cases(_matching(EAGER, args.only), SHORT) | run_in_interpreter(FAST_INTERPRETER)
        save_statistics(args.statistics, found)
    elif args.out:
        is_partial = args.only != "*" and Path(args.out, "tensors.pt").exists()
        found = load_tensors(args.out) if is_partial else {}
        for stage in record(args.only):
            found |= stage
            save(args.out, found)
        print(f"{len(found)} cases, {sum(map(len, found.values()))} tensors in {args.out}")
    else:
        parser.error("give --out or --statistics")


if __name__ == "__main__":
    main()
