"""Measurements that need a fresh process: a step's real memory use, and the first step's time.

The parent's side; `nero_tools.bench.child` is the other.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]


def resident_temporary_bytes(
    shape: str, competitor: str, *, dtype: str, threads: int
) -> int | None:
    """Return by how much one step raises the peak resident size of a process; ``None`` if unknown.

    This sees what torch's allocator does not: NumPy's arrays, a kernel's own memory, other threads.
    The kernel keeps the peak (VmHWM), which is reset just before a warmed-up step. glibc would serve
    temporaries from memory that it kept from an earlier step and so hide them. We therefore make it return
    every allocation of 64 kB or more at once.
    """
    env = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    printed = _ask_child("resident", shape, competitor, dtype, str(threads), env=env)
    value: int | None = printed["temporary_bytes"]
    return value


def first_step_seconds() -> dict[str, dict[str, float]]:
    """Return what a new process pays for its first step: cold, and with a kernel cached on disk.

    Seconds to import ``nero``, to build ``Nero(model)``, and to take the first and the second step on a
    small model with every kind of layer. Compiled code goes to an empty directory, where the second process
    finds it.
    """
    with tempfile.TemporaryDirectory() as cache:
        env = {"NUMBA_CACHE_DIR": cache}
        return {when: _ask_child("first-step", env=env) for when in ("cold", "cached")}


def _ask_child(*args: str, env: dict[str, str]) -> dict[str, Any]:
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "nero_tools.bench.child", *args],
        env={**os.environ, **env, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed
