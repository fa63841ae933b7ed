r"""How far does any neuron turn at each step? ``norm="rms"`` against ``norm="peak"``.

In the folder of this file, once with ``rms`` and once with ``peak``, then draw both:

    nero-lab run wikitext2 --optimizer largest_turns:rms --lr 0.03 --set num_tokens=200000 \
        --set precision=float32 --set 'schedule=Cosine(warmup=0.1)' --epochs 3
    python largest_turns.py ../../docs/images/largest-turns.svg
    python ../../docs/images/dark_mode.py ../../docs/images/largest-turns.svg

Each run writes its largest angles, divided by that step's learning rate, to records/largest-turns.json.
"""

import atexit
import json
import sys
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from nero.diagnostics import TurningMonitor, TurningReport
from nero_lab.engine.optimizers import OPTIMIZERS

RECORD = Path(__file__).parents[2] / "records" / "largest-turns.json"


class Largest:
    """A sink that keeps the largest turn of each step."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.turns: list[float] = []

    def write(self, report: TurningReport) -> None:
        """Keep the largest angle of any neuron, divided by the learning rate."""
        self.turns.append(max(layer.angle.max / layer.lr for layer in report.layers))

    def close(self) -> None:
        """Add the turns to the record."""
        record: dict[str, Any] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        record[self.name] = [round(turn, 3) for turn in self.turns]
        RECORD.write_text(json.dumps(record) + "\n")


def _watched(model: nn.Module, optimizers: list[Optimizer], name: str) -> list[Optimizer]:
    (optimizer,) = optimizers
    monitor = TurningMonitor(optimizer, model, every=1, sinks=[Largest(name)])
    atexit.register(monitor.close)
    return optimizers


def rms(model: nn.Module, lr: float) -> list[Optimizer]:
    """Return preset rows with the paper's norm."""
    return _watched(model, OPTIMIZERS["nero-rows-rms"].build(model, lr), "rms")


def peak(model: nn.Module, lr: float) -> list[Optimizer]:
    """Return preset rows with the peak norm."""
    return _watched(model, OPTIMIZERS["nero-rows"].build(model, lr), "peak")


def draw(path: str) -> None:
    """Draw the largest turn of each step, for both norms."""
    import matplotlib.pyplot as plt

    turns = json.loads(RECORD.read_text())
    fig, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
    for name, colour in (("rms", "#7a7f8c"), ("peak", "#d55e00")):
        axes.semilogy(turns[name], color=colour, linewidth=1.2, label=f'norm="{name}"')
    axes.axhline(1, color="#888888", linewidth=0.8, linestyle=":")
    axes.set(
        xlabel="step", ylabel="largest turn of any neuron / lr", title="WikiText-2, preset rows"
    )
    axes.legend(frameon=False)
    fig.savefig(path, dpi=160, transparent=True)


if __name__ == "__main__":
    draw(sys.argv[1])
