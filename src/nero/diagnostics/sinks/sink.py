"""What a sink is."""

from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from nero.diagnostics.report import TurningReport


@runtime_checkable
class Sink(Protocol):
    """Anything that takes reports: an object with ``write``.

    If it also has ``close``, [`TurningMonitor.close`][nero.diagnostics.TurningMonitor] calls it.

    Example:
        >>> from nero.diagnostics import Sink, TurningMonitor
        >>> class Loudest:
        ...     def write(self, report):
        ...         print(f"{max(layer.angle.max for layer in report.layers):.3f}")
        >>> isinstance(Loudest(), Sink)
        True
        >>> model = nn.Linear(8, 4)
        >>> optimizer = nero.Nero(model, lr=0.01)
        >>> monitor = TurningMonitor(optimizer, sinks=[Loudest()])
        >>> model.weight.grad = torch.eye(4, 8)
        >>> optimizer.step()
        0.0...
    """

    def write(self, report: TurningReport) -> None:
        """Take a report."""


def require(module: str, sink: str) -> Any:
    """Import what a sink needs, or say what to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.rpartition(".")[2]
        raise ModuleNotFoundError(f"{sink} needs {package}: pip install {package}") from error
