"""Where the commands write: tables or JSON on stdout or in a file, progress on stderr."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nero.numbers import json_values
from nero.tools.arguments import CommandError


def print_or_write(text: str, figures: dict[str, Any], path: str | None) -> None:
    """Print ``text``, or the figures as JSON where ``path`` is ``-``; write JSON to any other path."""
    packed = json.dumps(json_values(figures), indent=2)
    print(packed if path == "-" else text)
    if path not in (None, "-"):
        try:
            Path(path).write_text(packed + "\n")
        except OSError as error:
            raise CommandError(
                f"cannot write {path}: {error.strerror}; give another name"
            ) from error


@contextlib.contextmanager
def progress(what: str = "") -> Iterator[Callable[[str], None]]:
    """Yield a function that shows one line of progress, after ``what``, if stderr is a terminal.

    It draws only when it is called, between steps: a display that refreshed itself would run during them.
    """

    def draw(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    try:
        yield lambda text: draw(f"{what}: {text}" if what else text)
    finally:
        draw("")
