"""Watch a deep network fail to turn, and turn: draws docs/images/turning-angles.svg in less than a minute.

    python examples/turning_angles.py --out docs/images/turning-angles.svg
    python docs/images/dark_mode.py docs/images/turning-angles.svg

A plain MLP of 40 layers learns made-up data three times: with Adam from torch's own initial weights, with
Adam from weights drawn for its nonlinearity, and with Nero. A monitor looks at every step. The picture
shows, for each layer and step, the mean angle through which its neurons turned.
"""

import argparse
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from nero import Nero
from nero.diagnostics import TurningMonitor, TurningReport

NUM_LAYERS, WIDTH, NUM_INPUTS, NUM_CLASSES = 40, 64, 16, 4
LOWEST, HIGHEST = 1e-7, 1e-1  # radians, the ends of the colours


class Run(NamedTuple):
    """What a run has shown."""

    title: tuple[str, str]
    """The optimizer, and where it starts."""
    losses: list[float]
    accuracy: float
    angles: list[list[float]]
    """Of every step, one of every layer."""


class ScaledReLU(nn.Module):
    """The paper's nonlinearity, sqrt(2) * max(0, x), which keeps the size of balanced signals."""

    def forward(self, x: Tensor) -> Tensor:
        """Return as many numbers."""
        return math.sqrt(2) * torch.relu(x)


class Angles:
    """A sink that keeps mean angles."""

    def __init__(self) -> None:
        self.steps: list[list[float]] = []

    def write(self, report: TurningReport) -> None:
        """Keep those of one step."""
        self.steps.append([layer.angle.mean for layer in report.layers])


def mlp() -> nn.Sequential:
    """Return a deep network without norm layers and without shortcuts."""
    widths = [NUM_INPUTS, *[WIDTH] * (NUM_LAYERS - 1)]
    layers: list[nn.Module] = []
    for n, m in pairwise(widths):
        layers += [nn.Linear(n, m), ScaledReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, NUM_CLASSES))


def draw_weights_(model: nn.Module) -> None:
    """Draw weights that suit the nonlinearity, in place."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=1 / math.sqrt(layer.in_features))
            nn.init.zeros_(layer.bias)


def train(
    name: str, make: Callable[[nn.Module], Optimizer], num_steps: int, *, redraw: bool = False
) -> Run:
    """Train the network on made-up data, at a rate that falls to zero, and watch every step."""
    torch.manual_seed(0)
    inputs = torch.randn(256, NUM_INPUTS)
    labels = inputs[:, :NUM_CLASSES].argmax(dim=1)
    model = mlp()
    if redraw:
        draw_weights_(model)
    optimizer = make(model)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, num_steps)
    losses, angles = [], Angles()
    with TurningMonitor(optimizer, model, every=1, max_layers=None, sinks=[angles]):
        for _ in range(num_steps):
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
    accuracy = (model(inputs).argmax(dim=1) == labels).float().mean().item()
    start = "from weights drawn for this ReLU" if redraw else "from torch's initial weights"
    print(f"{name} {start}: loss {losses[-1]:.3f}, accuracy {accuracy:.0%}")
    return Run((name, start), losses, accuracy, angles.steps)


def draw(runs: list[Run]) -> Any:
    """Return the picture: losses above, angles below, one column a run."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.8), layout="constrained")
    axes = figure.subplots(
        2, len(runs), sharex="col", sharey="row", height_ratios=[1, 2.4], squeeze=False
    )
    image = None
    for run, loss_axes, angle_axes in zip(runs, *axes, strict=True):
        loss_axes.plot(range(1, len(run.losses) + 1), run.losses, color="#333333", linewidth=1.5)
        name, weights = run.title
        loss_axes.set_title(
            f"{weights}\n{run.accuracy:.0%} right in the end", loc="left", fontsize=10
        )
        loss_axes.annotate(
            name, (0, 1), (0, 30), "axes fraction", "offset points", fontsize=13, fontweight="bold"
        )
        loss_axes.spines[["top", "right"]].set_visible(False)
        loss_axes.grid(axis="y", alpha=0.25)
        rows = [[max(angle, LOWEST) for angle in layer] for layer in zip(*run.angles, strict=True)]
        image = angle_axes.imshow(
            rows,
            aspect="auto",
            origin="upper",
            cmap="magma",
            norm=LogNorm(LOWEST, HIGHEST),
            interpolation="nearest",
            extent=(0.5, len(run.losses) + 0.5, NUM_LAYERS + 0.5, 0.5),
        )
        angle_axes.set_xlabel("step")
        angle_axes.set_yticks([1, 10, 20, 30, 40])
    axes[0, 0].set_ylim(0, 1.05 * max(max(run.losses) for run in runs))
    axes[0, 0].set_ylabel("loss")
    axes[1, 0].set_ylabel("layer, from input to output")
    assert image is not None
    bar = figure.colorbar(image, ax=axes[1, :], pad=0.015, aspect=18)
    bar.set_label("mean turning angle of its neurons, radians")
    return figure


def main() -> None:
    """Train three times, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("turning-angles.png"))
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    def adam(model: nn.Module) -> Optimizer:
        return torch.optim.Adam(model.parameters(), lr=0.001)

    runs = [
        train("Adam", adam, options.steps),
        train("Adam", adam, options.steps, redraw=True),
        train("Nero", Nero, options.steps),
    ]
    draw(runs).savefig(options.out, dpi=160, transparent=True)
    print(f"drawn to {options.out}")


if __name__ == "__main__":
    main()
