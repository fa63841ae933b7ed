"""Reports in TensorBoard."""

from pathlib import Path
from typing import Any

from nero.diagnostics.report import Distribution, TurningReport
from nero.diagnostics.sinks.scalars import all_scalars
from nero.diagnostics.sinks.sink import missing


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
        self.writer = _new_writer(writer) if self._is_ours else writer
        self.prefix = prefix

    def write(self, report: TurningReport) -> None:
        """Add a point to every curve, and a histogram of angles for every layer."""
        for tag, value in all_scalars(report, self.prefix).items():
            self.writer.add_scalar(tag, value, report.step)
        for layer in report.layers:
            if layer.angle.num:
                self._add_histogram(f"{self.prefix}/{layer.name}/angle", layer.angle, report.step)

    def close(self) -> None:
        """Close the writer, if it was made here."""
        if self._is_ours:
            self.writer.close()

    def _add_histogram(self, tag: str, values: Distribution, step: int) -> None:
        # TensorBoard takes the upper bounds of bins. It never shows sums of squares.
        self.writer.add_histogram_raw(
            tag,
            min=values.min,
            max=values.max,
            num=values.num,
            sum=values.num * values.mean,
            sum_squares=values.num * values.mean**2,
            bucket_limits=[*values.EDGES[1:]],
            bucket_counts=[*values.histogram],
            global_step=step,
        )


def _new_writer(directory: str | Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise missing("tensorboard", "TensorBoardSink") from error
    return SummaryWriter(str(directory))
