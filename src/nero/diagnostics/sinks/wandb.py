"""Reports in Weights & Biases."""

from typing import Any

from nero.diagnostics.report import TurningReport
from nero.diagnostics.sinks.scalars import scalars
from nero.diagnostics.sinks.sink import require


class WandbSink:
    """Log curves and histograms of every layer to a run of Weights & Biases, online or offline.

    They have a step axis of their own, ``turning/step``, so that they get along with whatever else the run
    logs and however it counts.

    Args:
        run: what ``wandb.init`` returned.
        prefix: what names begin with.

    Example:
        >>> from nero.diagnostics import WandbSink
        >>> sink = WandbSink(wandb.init(mode="offline"))  # doctest: +SKIP
    """

    def __init__(self, run: Any, *, prefix: str = "turning") -> None:
        self._histogram = require("wandb", "WandbSink").Histogram
        self.run, self.prefix = run, prefix
        run.define_metric(f"{prefix}/step")
        run.define_metric(f"{prefix}/*", step_metric=f"{prefix}/step")

    def write(self, report: TurningReport) -> None:
        """Log one row."""
        row: dict[str, Any] = {f"{self.prefix}/step": report.step}
        row.update(scalars(report, self.prefix))
        for layer in report.layers:
            counts, edges = [*layer.angle.histogram], [*layer.angle.EDGES]
            row[f"{self.prefix}/{layer.name}/angle"] = self._histogram(np_histogram=(counts, edges))
        self.run.log(row)
