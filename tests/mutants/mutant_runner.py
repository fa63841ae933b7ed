"""Apply one small edit at a time to a copy of the repository, and see whether the tests notice."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

from tests.mutants.mutant import ROOT, Mutant, problem_with
from tests.mutants.mutant_digest import digest_of, state_of

COPIED = ("src", "tests", "lab", "tools", "conformance", "examples", "records", "docs")
COPIED += ("conftest.py", "pyproject.toml", "README.md")
PYTEST = ("-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly")


class Copy:
    """A copy of the repository, in which edits are made and undone."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.folder = folder
        for name in COPIED:
            source = root / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", ".*", "results", "figures")
                shutil.copytree(source, folder / name, ignore=ignored)
            elif source.exists():
                shutil.copy2(source, folder / name)

    def run(self, mutant: Mutant, timeout: float) -> dict[str, Any]:
        """Make the edit, run its tests, undo it, and return what happened."""
        path = self.folder / mutant.file
        original = path.read_text()
        start = time.perf_counter()
        path.write_text(original.replace(mutant.old, mutant.new))
        try:
            result, by = self._test(mutant, timeout)
        finally:
            path.write_text(original)
        return {"result": result, "by": by, "seconds": round(time.perf_counter() - start, 1)}

    def _test(self, mutant: Mutant, timeout: float) -> tuple[str, str]:
        # What is compiled from an edited kernel must not be found by the next one.
        cache = self.folder / "numba"
        kept = tempfile.mkdtemp(dir=self.folder) if mutant.is_kernel else str(cache)
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                str(self.folder / part) for part in ("src", "lab", "tools")
            ),
            "PYTHONDONTWRITEBYTECODE": "1",  # a file that changes twice in a second looks unchanged
            "NUMBA_CACHE_DIR": kept,
            **mutant.env,
        }
        command = [sys.executable, "-m", "pytest", *PYTEST, *mutant.tests]
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            return "timeout", ""
        finally:
            if mutant.is_kernel:
                shutil.rmtree(kept, ignore_errors=True)
        if done.returncode == 0:
            return "survived", ""
        if done.returncode == 1:
            failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", done.stdout, re.MULTILINE)
            return "killed", failed[1] if failed else "?"
        if done.returncode < 0:
            return "killed", f"the process died of signal {-done.returncode}"
        collected = re.search(r"^ERROR (\S+)", done.stdout, re.MULTILINE)
        if done.returncode == 2 and collected:
            return "killed", f"import of {collected[1]}"
        return "not applicable", (done.stdout + done.stderr)[-400:]


def run_all(
    mutants: Iterable[Mutant],
    record: Path,
    *,
    jobs: int = 1,
    fresh: bool = False,
    timeout: float = 600.0,
    root: Path = ROOT,
) -> dict[str, dict[str, Any]]:
    """Run every mutant whose verdict is missing or stale, and write the record after each.

    Args:
        mutants: what to run.
        record: a JSON file; verdicts that still hold are kept.
        jobs: how many at a time, each in a copy of its own.
        fresh: run all again.
        timeout: seconds after which the tests of a mutant are given up.
        root: the repository.
    """
    known = read_record(record)
    todo = [m for m in mutants if fresh or state_of(m, known, root) in ("stale", "not run")]
    lock, copies = threading.Lock(), Queue[Copy]()

    def run(mutant: Mutant) -> None:
        digest = digest_of(mutant, root)
        reason = problem_with(mutant, root)
        if reason is None:
            copy = copies.get()
            try:
                found = copy.run(mutant, timeout)
            finally:
                copies.put(copy)
        else:
            found = {"result": "not applicable", "by": reason, "seconds": 0.0}
        if mutant.survives:
            found["survives_because"] = mutant.survives
        with lock:
            known[mutant.name] = {"file": mutant.file, **found, "digest": digest}
            write_record(record, known)
            print(
                f"{found['result']:9} {found['seconds']:6.1f} s  {mutant.name}  {found['by']}",
                flush=True,
            )

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        for number in range(min(jobs, max(len(todo), 1))):
            copies.put(Copy(Path(folder, str(number)), root))
        list(pool.map(run, todo))
    return known


def read_record(path: Path) -> dict[str, dict[str, Any]]:
    """Return the verdicts by the names of mutants."""
    return json.loads(path.read_text())["mutants"] if path.exists() else {}


def write_record(path: Path, results: Mapping[str, Mapping[str, Any]]) -> None:
    """Write all results, and how many of the reachable mutants were killed."""
    counts: dict[str, int] = {}
    for found in results.values():
        counts[found["result"]] = counts.get(found["result"], 0) + 1
    reachable = [f for f in results.values() if not f.get("survives_because")]
    num_killed = sum(found["result"] == "killed" for found in reachable)
    summary = {
        "command": "python -m tests.mutants",
        "counts": dict(sorted(counts.items())),
        "reachable": len(reachable),
        "killed_of_reachable": round(num_killed / max(len(reachable), 1), 4),
        "mutants": dict(sorted(results.items())),
    }
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(summary, indent=1) + "\n")
    partial.replace(path)
