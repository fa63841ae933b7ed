"""Why a loss that was nearly zero jumps: draws docs/images/late-spike.png in about five minutes.

    python examples/late_spike.py --out docs/images/late-spike.png

The lab's perceptron of five layers (`nero-lab run mnist-reparam --optimizer nero --set biases=True`) learns
MNIST three times: at a constant rate, at one that falls to zero, and at a constant rate with a shorter
memory. A monitor looks at every step. Needs `nero-lab`; MNIST is read from `$NERO_DATA`, or fetched.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nero import Nero
from nero.diagnostics import TurningMonitor, TurningReport
from nero_lab.data.files import default_data_dir
from nero_lab.engine.task import Setting
from nero_lab.tasks.mnist_reparam import MNIST_REPARAM

LR = 0.01


class Run(NamedTuple):
    """What a run has shown, step by step."""

    title: str
    losses: list[float]
    largest_turns: list[float]
    """The largest angle of a neuron, in learning rates."""


class LargestTurns:
    """A sink that keeps the largest angle of each step, over the rate of that step."""

    def __init__(self) -> None:
        self.steps: list[float] = []

    def write(self, report: TurningReport) -> None:
        """Keep that of one step."""
        self.steps.append(max(layer.max_over_lr or 0.0 for layer in report.layers))


def train(
    title: str, *, scale: str, data_dir: Path, beta: float = 0.999, decay: bool = False
) -> Run:
    """Train the perceptron, and watch every step."""
    torch.manual_seed(0)
    recipe = MNIST_REPARAM.recipes[scale]
    recipe = replace(recipe, options={**recipe.options, "biases": True})
    experiment = MNIST_REPARAM.build(Setting(recipe, seed=0, data_dir=data_dir))
    optimizer = Nero(experiment.players["model"], lr=LR, beta=beta)
    num_steps = recipe.epochs * experiment.steps_per_epoch
    last_factor = 1 / num_steps if decay else 1.0
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, last_factor, num_steps)

    def take(_: str, loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()

    losses, turns = [], LargestTurns()
    with TurningMonitor(optimizer, every=1, max_layers=None, sinks=[turns]):
        for epoch in range(recipe.epochs):
            for batch in experiment.batches(epoch, 0):
                total, count = experiment.advance(batch, take)["loss"]
                losses.append(float(total) / count)
    print(f"{title}: mean loss of the last epoch {_mean_of_last_epoch(losses, recipe.epochs):.4f}")
    return Run(title, losses, turns.steps)


def draw(runs: list[Run]) -> Any:
    """Return the picture: losses above, largest angles below, one column a run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    axes = figure.subplots(2, len(runs), sharex=True, sharey="row", squeeze=False)
    for run, loss_axes, turn_axes in zip(runs, *axes, strict=True):
        steps = range(1, len(run.losses) + 1)
        loss_axes.semilogy(steps, run.losses, color="#333333", linewidth=0.8)
        loss_axes.set_title(run.title, loc="left", fontsize=11, fontweight="bold")
        turn_axes.plot(steps, run.largest_turns, color="#b5367a", linewidth=0.8)
        turn_axes.set_xlabel("step")
        for each in (loss_axes, turn_axes):
            each.spines[["top", "right"]].set_visible(False)
            each.grid(axis="y", alpha=0.25)
    axes[0, 0].set_ylabel("loss of the batch")
    axes[1, 0].set_ylabel("largest turn of a neuron,\nin learning rates")
    return figure


def main() -> None:
    """Train three times, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("late-spike.png"))
    parser.add_argument("--scale", choices=MNIST_REPARAM.recipes, default="cpu")
    parser.add_argument("--data-dir", type=Path, default=default_data_dir())
    options = parser.parse_args()
    shared = {"scale": options.scale, "data_dir": options.data_dir}
    runs = [
        train(f"constant rate, {LR}", **shared),
        train(f"rate that falls from {LR} to zero", decay=True, **shared),
        train("constant rate, beta = 0.99", beta=0.99, **shared),
    ]
    draw(runs).savefig(options.out, dpi=160)
    print(f"drawn to {options.out}")


def _mean_of_last_epoch(losses: list[float], num_epochs: int) -> float:
    last = losses[-(len(losses) // num_epochs) :]
    return sum(last) / len(last)


if __name__ == "__main__":
    main()
