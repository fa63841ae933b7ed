"""Where reports go: the sink protocol and a JSON Lines sink. nero-tools has others."""

import json
import os
from pathlib import Path
from typing import Protocol, runtime_checkable

from nero.diagnostics.report import TurningReport


@runtime_checkable
class Sink(Protocol):
    """Anything with a ``write(report)`` method.

    If it also has ``close``, [`TurningMonitor.close`][nero.diagnostics.TurningMonitor] calls it.

    Example:
        >>> from nero.diagnostics import Sink, TurningMonitor
        >>> class Loudest:
        ...     def write(self, report):
        ...         print(f"{max(layer.angle.max for layer in report.layers):.3f}")
        >>> isinstance(Loudest(), Sink)
        True
        >>> model = nn.Linear(8, 4)
        >>> optimizer = nero.Nero(model, lr=0.01)
        >>> monitor = TurningMonitor(optimizer, sinks=[Loudest()])
        >>> model.weight.grad = torch.eye(4, 8)
        >>> optimizer.step()
        0.0...
    """

    def write(self, report: TurningReport) -> None:
        """Take a report."""


class JsonLinesSink:
    """Append every report to a file as one line of JSON, histograms included.

    Args:
        path: the file; its directory is created if missing. A resumed run appends to it.

    Example:
        >>> import json, pathlib, tempfile
        >>> from nero.diagnostics import JsonLinesSink, TurningMonitor
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "turning.jsonl"
        >>> model = nn.Linear(8, 4)
        >>> optimizer = nero.Nero(model)
        >>> monitor = TurningMonitor(optimizer, sinks=[JsonLinesSink(path)])
        >>> model.weight.grad = torch.eye(4, 8)
        >>> optimizer.step()
        >>> layer = json.loads(path.read_text())["layers"][0]
        >>> layer["name"], layer["num_still"]
        ('weight', 0)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = as_path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, report: TurningReport) -> None:
        """Append a line."""
        # Opened each time, so that a killed run loses nothing.
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(report.as_dict()) + "\n")


def as_path(path: str | Path) -> Path:
    """Read a file path."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a file path, not {path!r}")
    return Path(path)
