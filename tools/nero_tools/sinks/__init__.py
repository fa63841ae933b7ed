"""More places for the monitor's reports than a file of JSON lines.

Each sink imports what it needs when it is built, and says what to install.

>>> from nero.diagnostics import TurningMonitor
>>> from nero_tools.sinks import FigureSink
>>> monitor = TurningMonitor(nero.Nero(nn.Linear(8, 4)), sinks=[FigureSink()])
"""

from nero_tools.sinks.figure import FigureSink
from nero_tools.sinks.live import LiveTableSink
from nero_tools.sinks.loggers import TensorBoardSink, WandbSink

__all__ = ["FigureSink", "LiveTableSink", "TensorBoardSink", "WandbSink"]
