"""One line, once per process, when numba compiles the kernel: the first step takes seconds, in silence."""

import logging
from typing import Any

from numba.core import event

MESSAGE = (
    "nero: numba is compiling the CPU kernel, which makes this step about 10 s longer. The result is "
    "cached on disk for later runs; fused=False does without"
)


class _Listener(event.Listener):
    """Hears of what numba compiles; what it finds in its cache is not compiled."""

    has_told = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if not self.has_told and function.__module__ == "nero.backends.cpu.kernel":
            self.has_told = True
            # Visible unless the user's own logging says otherwise, and no error under `-W error`.
            logging.getLogger("nero").warning(MESSAGE)

    def on_end(self, event: Any) -> None:
        pass


def announce_compiling() -> None:
    """From now on, tell the user when the kernel is compiled for the first time."""
    event.register("numba:compile", _Listener())  # type: ignore[no-untyped-call]
