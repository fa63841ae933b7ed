"""One line of progress on stderr."""

import contextlib
import sys
from collections.abc import Callable, Iterator


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
