"""Log one line per process when numba compiles the kernel, since the first step then takes seconds."""

import logging
from typing import Any

from numba.core import event

MESSAGE = (
    "nero: numba is compiling the CPU kernel, which makes this step about 5 s longer. The result is "
    "cached on disk for later runs; fused=False avoids it"
)


class _Listener(event.Listener):
    """Called when numba compiles a function, but not when it loads one from its cache."""

    has_logged = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if not self.has_logged and function.__module__ == "nero.backends.cpu.kernel":
            self.has_logged = True
            # Visible unless the user's logging hides it, and not an error under `-W error`.
            logging.getLogger("nero").warning(MESSAGE)

    def on_end(self, event: Any) -> None:
        pass


def announce_compiling() -> None:
    """Log a message when the kernel is first compiled from now on."""
    event.register("numba:compile", _Listener())  # type: ignore[no-untyped-call]
