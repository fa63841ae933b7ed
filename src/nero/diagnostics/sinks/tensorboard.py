"""Reports in TensorBoard."""

from pathlib import Path
from typing import Any

from nero.diagnostics.report import TurningReport
from nero.diagnostics.sinks.scalars import scalars
from nero.diagnostics.sinks.sink import require


class TensorBoardSink:
    """Write curves and histograms of every layer to TensorBoard.

    Args:
        writer: a ``SummaryWriter``, such as the one that your losses go to, or a directory for a new one.
        prefix: what tags begin with.

    Example:
        >>> import pathlib, tempfile
        >>> from nero.diagnostics import TensorBoardSink, TurningMonitor
        >>> directory = tempfile.mkdtemp()
        >>> model = nn.Linear(8, 4)
        >>> optimizer = nero.Nero(model)
        >>> with TurningMonitor(optimizer, sinks=[TensorBoardSink(directory)]):
        ...     model.weight.grad = torch.eye(4, 8)
        ...     optimizer.step()
        >>> len([*pathlib.Path(directory).glob("events*")])
        1
    """

    def __init__(self, writer: Any, *, prefix: str = "turning") -> None:
        self._is_ours = isinstance(writer, str | Path)
        self.writer = writer
        if self._is_ours:
            tensorboard = require("torch.utils.tensorboard", "TensorBoardSink")
            self.writer = tensorboard.SummaryWriter(str(writer))
        self.prefix = prefix

    def write(self, report: TurningReport) -> None:
        """Add a point to every curve, and a histogram of angles for every layer."""
        for tag, value in scalars(report, self.prefix).items():
            self.writer.add_scalar(tag, value, report.step)
        for layer in report.layers:
            angle = layer.angle
            if not angle.num:
                continue
            # TensorBoard takes the upper bounds of bins. It never shows sums of squares.
            self.writer.add_histogram_raw(
                f"{self.prefix}/{layer.name}/angle",
                min=angle.min,
                max=angle.max,
                num=angle.num,
                sum=angle.num * angle.mean,
                sum_squares=angle.num * angle.mean**2,
                bucket_limits=[*angle.EDGES[1:]],
                bucket_counts=[*angle.histogram],
                global_step=report.step,
            )

    def close(self) -> None:
        """Close the writer, if it was made here."""
        if self._is_ours:
            self.writer.close()
