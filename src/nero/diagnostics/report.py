"""What a sampled step has shown: plain values that print as a table, and as sentences."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from nero.diagnostics.findings import summarize_findings
from nero.diagnostics.layer_report import COLUMNS, LayerReport
from nero.tables import aligned


@dataclass(frozen=True)
class TurningReport:
    """What one step did to the sampled layers: print it, or read ``layers``.

    Example:
        >>> from nero.diagnostics import TurningMonitor
        >>> model = nn.Linear(8, 4)
        >>> optimizer = nero.Nero(model, lr=0.01)
        >>> monitor = TurningMonitor(optimizer)
        >>> model(torch.randn(16, 8)).square().mean().backward()
        >>> optimizer.step()
        >>> report = monitor.last_report
        >>> report.step, report["weight"].num_neurons, report["weight"].angle.max < 0.011
        (1, 4, True)
        >>> report.findings()
        []
    """

    step: int
    """The number of optimiser steps that the monitor has seen, this one included."""
    layers: tuple[LayerReport, ...]
    num_skipped: int | None
    """All updates that Nero has skipped so far; ``None`` for an optimiser that does not count."""

    def __getitem__(self, name: str) -> LayerReport:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(f"{name!r} was not sampled at this step, but {self.names} were")

    @property
    def names(self) -> list[str]:
        """The names of the sampled layers."""
        return [layer.name for layer in self.layers]

    def findings(self) -> list[str]:
        """Say in sentences what deserves attention; nothing, if nothing does."""
        return summarize_findings(self.layers)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON's types; what is not a finite number becomes ``None``."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)), parse_constant=lambda _: None)
        return plain

    def __str__(self) -> str:
        table = aligned([COLUMNS, *(layer.cells() for layer in self.layers)])
        return "\n".join([f"step {self.step:,}, angles in radians", table, *self.findings()])
