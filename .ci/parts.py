#!/usr/bin/env python3
"""Which parts of CI have to run: those that depend on a file that changed since they last passed.

    .ci/parts.py due [--all] [PART ...]   names the parts to run, and says which are skipped
    .ci/parts.py tests PART ...           names the files and folders that pytest collects for these parts
    .ci/parts.py record PART ...          writes down that these parts have passed

records/ci.json has one digest per part: of its row in the table below, and of the names and contents of all
files that the row matches. A part whose digest is still the same would only pass again. With `--all`,
nothing is skipped. This needs no more than Python and git, because it decides what is installed.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = Path("records", "ci.json")


@dataclass(frozen=True)
class Part:
    """Something that passes or fails, named as its target in the Makefile."""

    name: str
    files: tuple[str, ...]
    """What it depends on, as git's pathspecs: a folder is all that is in it, ":!" leaves something out."""
    tests: tuple[str, ...] = ()
    """What pytest collects for it."""
    is_weekly: bool = False
    """Whether it runs when its own files change and on Mondays, not for every change of the library."""
    is_only_weekly: bool = False
    """Whether it runs on Mondays only, because it takes too long."""


# What every part depends on: versions, commands, and what all test processes import.
COMMON = (
    *(".ci/lock.txt", "constraints.txt", "Makefile", "conftest.py"),
    *("pyproject.toml", "lab/pyproject.toml", "tools/pyproject.toml"),
    *("tests/integrations/frameworks.py", ":!records/ci.json"),
)
# All of the library that the core can reach: the folders left out import it, never the reverse.
LIBRARY = ("src/nero", ":!src/nero/integrations", ":!src/nero/jax")
RANKS = ("tests/distributed/ranks.py",)

PARTS = (
    Part("types", ("src", "lab/nero_lab", "tools/nero_tools", "conformance", "examples")),
    Part("pages", ("docs", "mkdocs.yml", "src", "lab/nero_lab", "lab/report", "lab/PROTOCOL.md",
                   "tools/nero_tools")),
    Part("notebooks", ("docs/notebooks", "docs/hooks/notebooks.py"), is_weekly=True),
    Part(
        "test-kernels",
        ("tests/backends", "tests/emulated_gpu", "tests/operations.py", *RANKS, *LIBRARY,
         "tools/nero_tools"),
        ("tests/backends", "tests/emulated_gpu"),
    ),
    Part(
        "test-distributed",
        ("tests/distributed", "examples/fsdp2.py", *LIBRARY, "tools/nero_tools"),
        ("tests/distributed",),
    ),
    # What takes long in any part, such as products of options of which the others have a selection.
    Part("slow", ("tests", "lab", "tools", "src"), is_only_weekly=True),
    # All variants of the Triton kernel on three architectures: compiling them takes longest.
    Part(
        "variants",
        ("tests/emulated_gpu", "src/nero/backends/triton", "src/nero/backends/plain.py", "src/nero/core"),
        is_only_weekly=True,
    ),
    Part("test-lab", ("lab", "README.md", "docs", "tools/reports", *RANKS), ("lab",), is_weekly=True),
    Part(
        "test-tools",
        ("tools", "docs", "records", "examples", *RANKS, "tests/cli", "tests/contract",
         "tests/diagnostics/watching.py", *LIBRARY),
        ("tools",),
    ),
    Part(
        "integrations",
        ("tests/integrations", "docs/how-to/trainers.md", *RANKS, "tests/distributed/flat_network.py",
         "src/nero", ":!src/nero/jax", "lab/nero_lab"),
        ("tests/integrations", "src/nero/integrations", "docs/how-to/trainers.md"),
    ),
    Part(
        "jax",
        ("tests/nero_jax", "docs/how-to/jax.md", "conformance", "src/nero", ":!src/nero/integrations"),
        ("tests/nero_jax", "src/nero/jax", "docs/how-to/jax.md"),
    ),
)  # fmt: skip


def files_of(part: Part, root: Path = ROOT) -> list[str]:
    """Return the files that a part depends on; what git ignores does not count."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    listed = subprocess.run(
        [*command, *COMMON, *part.files], cwd=root, check=True, capture_output=True
    )
    return sorted({name for name in listed.stdout.decode().split("\0") if name})


def digest_of(part: Part, root: Path = ROOT) -> str:
    """Return a number that another row, or another name or content of a file, would change."""
    digest = hashlib.sha256(repr(astuple(part)).encode())
    for name in files_of(part, root):
        path = root / name
        content = path.read_bytes() if path.is_file() else b"is missing"
        digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def due(parts: Iterable[Part], root: Path = ROOT) -> list[Part]:
    """Return the parts that have not passed as they are now, without those for Mondays."""
    passed = _read(root)
    return [
        part
        for part in parts
        if not part.is_only_weekly and passed.get(part.name) != digest_of(part, root)
    ]


def record(parts: Iterable[Part], root: Path = ROOT) -> None:
    """Write down that parts have passed as they are now."""
    passed = {**_read(root), **{part.name: digest_of(part, root) for part in parts}}
    text = json.dumps({"command": ".ci/run --record", "passed": passed}, indent=1, sort_keys=True)
    (root / RECORD).write_text(text + "\n")


def _read(root: Path) -> dict[str, str]:
    path = root / RECORD
    return dict(json.loads(path.read_text())["passed"]) if path.exists() else {}


def main() -> None:
    """Print what is asked for: names on stdout, remarks on stderr."""
    parser = argparse.ArgumentParser(".ci/parts.py", description="Which parts of CI have to run.")
    parser.add_argument("action", choices=("due", "tests", "record"))
    parser.add_argument("names", nargs="*", metavar="PART", help="`due` alone asks about all")
    parser.add_argument("--all", action="store_true", help="skip nothing")
    options = parser.parse_args()
    by_name = {part.name: part for part in PARTS}
    unknown = [name for name in options.names if name not in by_name]
    if unknown:
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(by_name)}")
    chosen = [by_name[name] for name in options.names]
    if options.action == "record":
        record(chosen)
    elif options.action == "tests":
        print(*(path for part in chosen for path in part.tests))
    else:
        chosen = chosen or list(PARTS)
        found = chosen if options.all else due(chosen)
        for part in chosen:
            if part not in found:
                why = "runs every Monday" if part.is_only_weekly else "unchanged since it passed"
                print(f"{part.name}: {why}, skipped", file=sys.stderr)
        print(*(part.name for part in found))


if __name__ == "__main__":
    main()
