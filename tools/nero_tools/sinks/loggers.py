"""Reports in experiment loggers: TensorBoard, and Weights & Biases."""

from pathlib import Path
from typing import Any

from nero.diagnostics.report import TurningReport
from nero_tools.sinks.require import require


class TensorBoardSink:
    """Write curves and histograms of every layer to TensorBoard.

    Args:
        writer: a ``SummaryWriter``, such as the one that your losses go to, or a directory for a new one.
        prefix: what tags begin with.

    Example:
        >>> import pathlib, tempfile
        >>> from nero.diagnostics import TurningMonitor
        >>> from nero_tools.sinks import TensorBoardSink
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
        elif not hasattr(writer, "add_scalar"):
            raise TypeError(f"writer must be a SummaryWriter or a directory, not {writer!r}")
        self.prefix = prefix

    def write(self, report: TurningReport) -> None:
        """Add a point to every curve, and a histogram of angles for every layer."""
        for tag, value in _scalars(report, self.prefix).items():
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


class WandbSink:
    """Log curves and histograms of every layer to a run of Weights & Biases, online or offline.

    They have a step axis of their own, ``turning/step``, so that they do not interfere with what else the
    run logs.

    Args:
        run: what ``wandb.init`` returned.
        prefix: what names begin with.

    Example:
        >>> from nero_tools.sinks import WandbSink
        >>> sink = WandbSink(wandb.init(mode="offline"))  # doctest: +SKIP
    """

    def __init__(self, run: Any, *, prefix: str = "turning") -> None:
        self._histogram = require("wandb", "WandbSink").Histogram
        if not hasattr(run, "define_metric"):
            raise TypeError(f"run must be what wandb.init returned, not {run!r}")
        self.run, self.prefix = run, prefix
        run.define_metric(f"{prefix}/step")
        run.define_metric(f"{prefix}/*", step_metric=f"{prefix}/step")

    def write(self, report: TurningReport) -> None:
        """Log one row."""
        row: dict[str, Any] = {f"{self.prefix}/step": report.step}
        row.update(_scalars(report, self.prefix))
        for layer in report.layers:
            counts, edges = [*layer.angle.histogram], [*layer.angle.EDGES]
            row[f"{self.prefix}/{layer.name}/angle"] = self._histogram(np_histogram=(counts, edges))
        self.run.log(row)


def _scalars(report: TurningReport, prefix: str) -> dict[str, float]:
    """Return the numbers of a report that are worth a curve, as ``prefix/layer/curve``."""
    named: dict[str, float | None] = {f"{prefix}/num_skipped": report.num_skipped}
    for layer in report.layers:
        curves = {
            "angle_median": layer.angle.median,
            "angle_mean": layer.angle.mean,
            "angle_max": layer.angle.max,
            "relative_change": layer.layer_relative_change,
            "norm_mean": layer.norm.mean,
            "mean_drift": layer.mean_drift,
            "norm_drift": layer.norm_drift,
            "still": layer.num_still,
            "zero_grad": layer.num_zero_grad,
            "too_far": layer.num_too_far,
            "undefined": layer.num_undefined,
            "nonfinite_grad": layer.num_nonfinite_grad,
        }
        named |= {f"{prefix}/{layer.name}/{key}": value for key, value in curves.items()}
    return {name: float(value) for name, value in named.items() if value is not None}
