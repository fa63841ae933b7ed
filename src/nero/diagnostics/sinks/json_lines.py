"""Reports as lines of JSON."""

import json
from pathlib import Path

from nero.diagnostics.report import TurningReport


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
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, report: TurningReport) -> None:
        """Append a line."""
        # Opened anew each time: a killed run loses nothing.
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(report.as_dict()) + "\n")
