"""Where reports go. Each sink imports what it needs when it is built, and says what to install."""

from nero.diagnostics.sinks.figure import FigureSink
from nero.diagnostics.sinks.json_lines import JsonLinesSink
from nero.diagnostics.sinks.live import LiveTableSink
from nero.diagnostics.sinks.sink import Sink
from nero.diagnostics.sinks.tensorboard import TensorBoardSink
from nero.diagnostics.sinks.wandb import WandbSink

__all__ = [
    "FigureSink",
    "JsonLinesSink",
    "LiveTableSink",
    "Sink",
    "TensorBoardSink",
    "WandbSink",
]
