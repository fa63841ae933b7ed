"""Draw what a step does to a neuron, and what alpha-robustness asks of it.

    python examples/neuron_turning_figure.py           # writes docs/images/neuron-turning.svg
    python docs/images/dark_mode.py docs/images/neuron-turning.svg

On the left is the plane that holds a neuron and its gradient: Nero's step goes along the negative
gradient, and the projection brings the neuron back onto the sphere, so all that remains is a turn.
On the right is the sphere of a balanced neuron of fan-in four, with all places that it can reach by
turning through no more than an angle: a cap. The package computes both.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from nero.diagnostics import turning_angle
from nero.functional import nero_update
from nero.layout import neurons
from nero_tools.theory import log_cap_measure

DEFAULT = Path(__file__).parents[1] / "docs" / "images" / "neuron-turning.svg"
INK, BLUE, RED, GREY = "#222222", "#3f51b5", "#c62828", "#9e9e9e"
ETA, ALPHA = 0.5, 0.6  # large, so that they can be seen


def main() -> None:
    """Parse the command line, and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=DEFAULT)
    options = parser.parse_args()
    figure = Figure(figsize=(9.6, 4.4), layout="constrained")
    draw_step(figure.add_subplot(1, 2, 1))
    draw_cap(figure.add_subplot(1, 2, 2, projection="3d"))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=110, transparent=True)
    print(f"wrote {options.out}")


def draw_step(axes: Any) -> None:
    """Draw one step of Nero in the plane of the neuron and its gradient."""
    w, g = torch.tensor([[1.0, 0.0, -1.0]]) / 2**0.5, torch.tensor([[1.0, -2.0, 1.0]]) / 6**0.5
    state = {"exp_avg_norm": torch.zeros(1, 1)}
    new = nero_update(w, g, state, neurons=neurons(0).at(w.shape), step=1, lr=ETA).weight
    # Neurons of fan-in three and mean zero fill a plane; -g and w are its axes.
    plane = torch.cat([-g, w])

    def flat(vector: Tensor) -> tuple[float, float]:
        x, y = (plane @ vector.flatten()).tolist()
        return x, y

    before, stepped, after = flat(w), flat(w - ETA * g), flat(new)
    theta = turning_angle(w, new, fan_in_dims=(1,)).item()
    turn = torch.linspace(0, 2 * math.pi, 400)
    axes.plot(turn.cos(), turn.sin(), color=GREY, linewidth=1)
    for tip, colour in ((before, INK), (after, BLUE)):
        _arrow(axes, (0.0, 0.0), tip, colour)
    _arrow(axes, before, stepped, RED)
    axes.plot(*zip(stepped, after, strict=True), color=GREY, linestyle=":", linewidth=1.5)
    arc = torch.linspace(math.pi / 2 - theta, math.pi / 2, 50)
    axes.plot(0.35 * arc.cos(), 0.35 * arc.sin(), color=INK, linewidth=1)
    middle = math.pi / 2 - theta / 2
    axes.text(0.43 * math.cos(middle), 0.43 * math.sin(middle), r"$\theta$", ha="center")
    axes.text(-0.05, 0.6, r"$w$", color=INK, ha="right", fontsize=13)
    axes.text(0.36, 0.55, r"$w'$", color=BLUE, fontsize=13)
    axes.text(0.26, 1.14, r"$-\,\eta\,\dfrac{\|w\|}{\bar g}\,g$", color=RED, ha="center")
    axes.text(0.0, -0.35, "balanced neurons\nof fan-in 3", color="#757575", ha="center")
    axes.set_title(
        rf"a step of $\eta$ = {ETA} turns a neuron by $\theta$ = {theta:.2f}", fontsize=11
    )
    axes.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.42), aspect="equal")
    axes.axis("off")


def draw_cap(axes: Any) -> None:
    """Draw the sphere of a balanced neuron of fan-in four, and the cap around it."""
    pole = torch.tensor([0.5, 0.35, 0.8])
    pole = pole / pole.norm()
    side = torch.tensor([0.0, 1.0, 0.0]) - pole[1] * pole  # to the right, as one looks from +x
    side = side / side.norm()
    other = torch.linalg.cross(pole, side)

    def points(angle: Tensor, turn: Tensor) -> Tensor:
        a, t = angle[..., None], turn[..., None]
        xyz: Tensor = a.cos() * pole + a.sin() * (t.cos() * side + t.sin() * other)
        return xyz

    around, out = torch.linspace(0, 2 * math.pi, 90), torch.linspace(0, ALPHA, 20)
    whole = torch.meshgrid(torch.linspace(0, math.pi, 40), around, indexing="ij")
    _surface(axes, points(*whole), "#c5cae9", 0.25)
    for latitude in (-60, -30, 0, 30, 60):
        level, height = math.cos(math.radians(latitude)), math.sin(math.radians(latitude))
        axes.plot(level * around.cos(), level * around.sin(), height, color=GREY, linewidth=0.4)
    _surface(axes, points(*torch.meshgrid(out, around, indexing="ij")), BLUE, 0.4)
    _line(axes, points(torch.full((90,), ALPHA), around), BLUE)
    arc = points(out, torch.zeros(20))
    for tip, colour in ((arc[0], INK), (arc[-1], BLUE)):
        axes.quiver(0, 0, 0, *tip.tolist(), color=colour, arrow_length_ratio=0.1, linewidth=1.8)
    _line(axes, 0.5 * arc, INK)
    axes.text(*(0.56 * arc[10]).tolist(), r"$\alpha$", fontsize=13, zorder=10)
    axes.text(*(1.1 * pole).tolist(), r"$w$", fontsize=13, zorder=10)
    axes.text2D(
        0.5,
        0.02,
        "balanced neurons\nof fan-in 4",
        transform=axes.transAxes,
        color="#757575",
        ha="center",
    )
    share = math.exp(log_cap_measure(ALPHA, sphere_dim=2))
    title = rf"within $\alpha$ = {ALPHA} of $w$: a cap, {share:.1%} of the sphere"
    axes.set_title(title, fontsize=11)
    axes.set(xlim=(-0.75, 0.75), ylim=(-0.75, 0.75), zlim=(-0.75, 0.75))
    axes.set_box_aspect((1, 1, 1))
    axes.view_init(elev=8, azim=0)
    axes.axis("off")


def _surface(axes: Any, points: Tensor, colour: str, alpha: float) -> None:
    parts = [part.numpy() for part in points.unbind(-1)]
    axes.plot_surface(*parts, color=colour, alpha=alpha, linewidth=0, shade=False, rasterized=True)


def _line(axes: Any, points: Tensor, colour: str) -> None:
    axes.plot(*points.T.numpy(), color=colour, linewidth=1.3)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.8, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=end, xytext=start, arrowprops={**style, "mutation_scale": 16})


if __name__ == "__main__":
    main()
