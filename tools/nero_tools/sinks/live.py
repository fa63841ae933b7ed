"""Reports as a table that stays in its place in the terminal."""

import time
from typing import Any

from nero.diagnostics.report import COLUMNS, HARDLY_RAD, LayerReport, TurningReport
from nero_tools.sinks.require import require


class LiveTableSink:
    """Show the newest numbers of every layer in the terminal, in colours.

    A row is red if neurons turned too far or are not finite, yellow if some do not turn, and dim if the
    last report did not sample it. The findings of the last report are below the table.

    Args:
        console: a ``rich.console.Console``; a new one by default.

    Example:
        >>> from rich.console import Console
        >>> from nero.diagnostics import TurningMonitor
        >>> from nero_tools.sinks import LiveTableSink
        >>> model = nn.Linear(8, 4)
        >>> optimizer = nero.Nero(model)
        >>> with TurningMonitor(optimizer, sinks=[LiveTableSink(Console(width=110))]):
        ...     model.weight.grad = torch.eye(4, 8)
        ...     optimizer.step()
        step 1...
    """

    def __init__(self, console: Any = None) -> None:
        require("rich", "LiveTableSink")
        from rich.live import Live

        # Redrawn when there is something new, and by the thread that trains.
        self._live = Live(console=console, auto_refresh=False)
        self._layers: dict[str, tuple[int, LayerReport]] = {}

    def write(self, report: TurningReport) -> None:
        """Redraw."""
        self._layers.update({layer.name: (report.step, layer) for layer in report.layers})
        self._live.start()
        self._live.update(self._drawn(report), refresh=True)

    def close(self) -> None:
        """Leave the table where it is, and give the terminal back."""
        self._live.stop()

    def _drawn(self, report: TurningReport) -> Any:
        from rich.box import SIMPLE_HEAD
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        clock = time.strftime("%H:%M:%S")
        title = f"step {report.step:,}, {clock}, angles in radians"
        table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD)
        table.pad_edge, table.padding = False, (0, 1)
        for index, column in enumerate(COLUMNS):
            table.add_column(column, justify="right" if index else "left", no_wrap=True)
        for step, layer in self._layers.values():
            table.add_row(*layer.cells(), style=_style(layer) + " dim" * (step != report.step))
        return Group(table, *(Text(sentence) for sentence in report.findings()))


def _style(layer: LayerReport) -> str:
    if layer.num_too_far or layer.num_undefined or layer.num_nonfinite_grad:
        return "red"
    if layer.num_still or layer.angle.median < HARDLY_RAD:
        return "yellow"
    return "default"
