"""Workers that are started again when they fail or take too long."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.zoo.catalogue import Entry

ROOT = Path(__file__).parents[2]
SECONDS_TO_START, SECONDS_PER_MODEL = 300.0, 120.0


def study_all(entries: Sequence[Entry], jobs: int) -> Iterator[dict[str, Any]]:
    """Yield the results of all entries, as they come."""
    results: SimpleQueue[dict[str, Any]] = SimpleQueue()
    waiting = iter(list(entries))  # next() of a list's iterator is atomic
    with ThreadPoolExecutor(jobs) as threads:
        for _ in range(jobs):
            threads.submit(_serve, waiting, results)
        for _ in entries:
            yield results.get()


def _serve(waiting: Iterator[Entry], results: SimpleQueue[dict[str, Any]]) -> None:
    worker = None
    for entry in waiting:
        try:
            worker = worker or _Worker()
            results.put(worker.ask(entry))
        except (OSError, ValueError, TimeoutError) as failure:
            error = f"{type(failure).__name__}: {failure}"
            results.put({**entry._asdict(), "half": entry.half, "passes": {}, "error": error})
            if worker is not None:
                worker.stop()
            worker = None
    if worker is not None:
        worker.stop()


class _Worker:
    def __init__(self) -> None:
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.zoo.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
            cwd=ROOT,
        )
        self.answer(SECONDS_TO_START)

    def ask(self, entry: Entry) -> Any:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(entry).encode() + b"\n")
        self.process.stdin.flush()
        return self.answer(SECONDS_PER_MODEL)

    def answer(self, seconds: float) -> Any:
        assert self.process.stdout
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        if not ready:
            raise TimeoutError(f"no answer within {seconds:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise OSError("the worker died")
        return json.loads(line)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
