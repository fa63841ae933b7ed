"""Reports as a picture: the angles of every layer over the steps."""

from pathlib import Path
from typing import Any

from nero.diagnostics.report import TurningReport
from nero.diagnostics.sinks import as_path
from nero_tools.sinks.require import require

_MAX_NAMES = 16


class FigureSink:
    """Draw the turning angles of every layer over the steps: the median, and where 90% of neurons are.

    Args:
        path: where `close` saves the picture, in a directory that is created if missing; ``None`` if you
            `draw` it yourself.

    Example:
        >>> from nero.diagnostics import TurningMonitor
        >>> from nero_tools.sinks import FigureSink
        >>> model = nn.Linear(8, 4)
        >>> optimizer = nero.Nero(model)
        >>> figure = FigureSink()
        >>> monitor = TurningMonitor(optimizer, sinks=[figure], every=1)
        >>> for _ in range(3):
        ...     model.weight.grad = torch.randn(4, 8)
        ...     optimizer.step()
        >>> figure.draw().axes[0].get_xlabel()
        'step'
    """

    def __init__(self, path: str | Path | None = None) -> None:
        require("matplotlib", "FigureSink")
        self.path = None if path is None else as_path(path)
        if self.path is not None:  # now, and not after hours of training
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self._layers: dict[str, list[tuple[float, ...]]] = {}  # steps, and quantiles of angles
        self._lrs: dict[int, float] = {}

    def write(self, report: TurningReport) -> None:
        """Remember the points of a report."""
        for layer in report.layers:
            point = (report.step, *layer.angle.quantiles)
            self._layers.setdefault(layer.name, []).append(point)
            if layer.lr_is_angle:
                self._lrs[report.step] = max(layer.lr, self._lrs.get(report.step, 0.0))

    def close(self) -> None:
        """Save the picture, if there is a path and something to draw."""
        if self.path is not None and self._layers:
            self.draw().savefig(self.path, dpi=150)

    def draw(self) -> Any:
        """Return a matplotlib figure; its first axes hold the curves."""
        from matplotlib import colormaps
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.subplots()
        colours = colormaps["viridis"].resampled(max(len(self._layers), 2))
        every = -(-len(self._layers) // _MAX_NAMES)  # of many layers, only some are named
        for index, (name, points) in enumerate(self._layers.items()):
            steps, lows, _, medians, _, highs = zip(*points, strict=True)
            colour = colours(index)
            axes.fill_between(steps, lows, highs, color=colour, alpha=0.12, linewidth=0)
            # Matplotlib leaves out labels that begin so, such as the names in a compiled model.
            label = "_" if index % every else name.lstrip("_")
            axes.plot(steps, medians, color=colour, linewidth=1.6, label=label)
        if self._lrs:
            axes.plot([*self._lrs], [*self._lrs.values()], color="black", linestyle=":", label="lr")
        if any(point[-1] > 0 for points in self._layers.values() for point in points):
            axes.set_yscale("log")
        axes.set_xlabel("step")
        axes.set_ylabel("turning angle, radians")
        axes.set_title("median and 5% to 95% of the neurons of each layer", loc="left", fontsize=10)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
        return figure
