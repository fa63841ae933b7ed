"""The ``nero-lab`` command in this process, and what it must never do."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from nero_lab.cli import main


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """The last line on stderr."""
        return self.err.splitlines()[-1] if self.err else ""

    def assert_refused(self, message: str, *, codes: Sequence[int] = (1, 2)) -> None:
        """It failed with one line that says so, after the usage of the command at most."""
        assert self.code in codes, self
        assert "Traceback" not in self.err
        assert message in self.message, self.err
        assert self.message.startswith("nero-lab")
        # A usage is wrapped: its first line says so, the others are indented.
        before = self.err.splitlines()[:-1]
        assert all(line.startswith(("usage: nero-lab", "  ")) for line in before), self.err


Call = Callable[..., Ended]


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Call]:
    """Yield a function that runs the command in ``tmp_path`` and says how it ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*words: str | Path) -> Ended:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Ended(code, *capsys.readouterr())

    yield run
    forget_modules(tmp_path)


def forget_modules(folder: Path) -> None:
    """Forget the modules that were imported from a folder: the next test has others of those names."""
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


def files_below(folder: Path) -> set[str]:
    """Return every file and folder below one, by its path from there."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def hear_ctrl_c() -> None:
    """Let a new process hear Ctrl-C, which one that was started in the background inherits as ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
