"""Apply one small edit at a time to a copy of the repository, and see whether the tests notice."""

import hashlib
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
from dataclasses import astuple, dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "lab", "conformance", "conftest.py", "pyproject.toml")
PYTEST = ("-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly")


@dataclass(frozen=True)
class Mutant:
    """A small edit that some test must notice."""

    name: str
    """Where and what, as in ``rule-beta``."""
    file: str
    old: str
    """What must occur exactly once in the file."""
    new: str
    tests: tuple[str, ...]
    """What to run: paths, node ids, ``-k`` and its expression."""
    is_kernel: bool = False
    """Whether what numba has compiled and kept is no longer valid."""
    env: Mapping[str, str] = field(default_factory=dict)
    survives: str = ""
    """Why no test can notice, where none can."""

    @property
    def digest(self) -> str:
        """Tells whether a result is that of this very edit."""
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()[:12]


def problem_with(mutant: Mutant, root: Path = ROOT) -> str | None:
    """Return why an edit cannot be made, or ``None``."""
    path = root / mutant.file
    if not path.exists():
        return f"{mutant.file} does not exist"
    count = path.read_text().count(mutant.old)
    if count != 1:
        return f"{mutant.old!r} occurs {count} times in {mutant.file}, not once"
    return "the edit changes nothing" if mutant.old == mutant.new else None


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
            "PYTHONPATH": os.pathsep.join(str(self.folder / part) for part in ("src", "lab")),
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
    """Run every mutant that has no result yet, and write the record after each.

    Args:
        mutants: what to run.
        record: a JSON file; results that it has are kept.
        jobs: how many at a time, each in a copy of its own.
        fresh: run all again.
        timeout: seconds after which the tests of a mutant are given up.
        root: the repository.
    """
    known = json.loads(record.read_text())["mutants"] if record.exists() else {}
    todo = [m for m in mutants if fresh or known.get(m.name, {}).get("digest") != m.digest]
    lock, copies = threading.Lock(), Queue[Copy]()

    def run(mutant: Mutant) -> None:
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
            known[mutant.name] = {"file": mutant.file, **found, "digest": mutant.digest}
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
