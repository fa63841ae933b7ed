"""A small edit that some test must notice."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]


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
    """What to run: files, folders such as ``tests/layout``, node ids, ``-k`` and its expression."""
    is_kernel: bool = False
    """Whether what numba has compiled and kept is no longer valid."""
    env: Mapping[str, str] = field(default_factory=dict)
    survives: str = ""
    """Why no test can notice, where none can."""


def problem_with(mutant: Mutant, root: Path = ROOT) -> str | None:
    """Return why an edit cannot be made, or ``None``."""
    path = root / mutant.file
    if not path.exists():
        return f"{mutant.file} does not exist"
    count = path.read_text().count(mutant.old)
    if count != 1:
        return f"{mutant.old!r} occurs {count} times in {mutant.file}, not once"
    return "the edit changes nothing" if mutant.old == mutant.new else None
