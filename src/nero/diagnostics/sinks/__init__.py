"""Where reports go. Each sink imports what it needs when it is built, and says what to install."""

from nero.diagnostics.sinks.figure import FigureSink
from nero.diagnostics.sinks.live import LiveTableSink
from nero.diagnostics.sinks.loggers import TensorBoardSink, WandbSink
from nero.diagnostics.sinks.sink import JsonLinesSink, Sink

__all__ = [
    "FigureSink",
    "JsonLinesSink",
    "LiveTableSink",
    "Sink",
    "TensorBoardSink",
    "WandbSink",
]
