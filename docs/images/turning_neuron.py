"""Draw docs/images/turning-neuron.svg: nine real steps of `Nero` on one neuron, as an animation.

    python docs/images/turning_neuron.py

The neuron has four inputs. Balanced weights (mean zero, norm one) of fan-in 4 fill an ordinary sphere, so
nothing is left out of the picture. The loss is the mean absolute error over all 16 inputs of plus and minus
one; the ring marks the weights with zero loss. The file follows the reader's colour scheme. With
`prefers-reduced-motion` it stands still and shows all nine steps, as it does before the animation begins.
tests/test_figures.py fails if the file is out of date.
"""

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nero import Nero
from nero.diagnostics import turning_angle
from nero.functional import project

LR, NUM_STEPS = 0.25, 9
START, TARGET = (-0.8, 0.1, 0.6), (0.75, 0.35, 0.55)  # on the sphere
WIDTH, HEIGHT = 480, 300
CENTRE, RADIUS = (146, 150), 132
TILT = 0.22  # radians from which the sphere is seen from above
HOLD, STEP = 2.4, 1.1  # seconds: of the finished picture, and of each step
SECONDS = HOLD + STEP * NUM_STEPS + 0.3

STYLE = """\
text { font: 16px system-ui, "Segoe UI", Roboto, sans-serif; fill: #3c4250 }
.strong { font-weight: 600; fill: #1b1f2a }
.sphere { fill: url(#shade); stroke: #8791a5; stroke-width: 1.5 }
.line { fill: none; stroke: #8791a5; stroke-width: 0.8; opacity: 0.65 }
.back { opacity: 0.25 }
.ring { fill: none; stroke: #1f7a4d; stroke-width: 2.5 }
.trail { fill: none; stroke: #3f51b5; stroke-width: 2.5; stroke-linecap: round; stroke-dasharray: 100 }
.dot, .bar, .head { fill: #3f51b5 }
.weight { stroke: #3f51b5; stroke-width: 3; vector-effect: non-scaling-stroke }
.step { stroke: #c62828; stroke-width: 2.5 }
.tip { fill: #c62828 }
.drop { stroke: #c62828; stroke-width: 1.5; stroke-dasharray: 2 3 }
.rate { stroke: #3c4250; stroke-width: 1.5; stroke-dasharray: 5 4 }
@media (prefers-color-scheme: dark) {
  text { fill: #c3c9d6 }
  .strong { fill: #f1f3f8 }
  .ring { stroke: #5fd39b }
  .trail, .weight { stroke: #a3b1ff }
  .dot, .bar, .head { fill: #a3b1ff }
  .step, .drop { stroke: #ff8a80 }
  .tip { fill: #ff8a80 }
  .rate { stroke: #c3c9d6 }
}"""


class Step(NamedTuple):
    """One step, in coordinates of the sphere."""

    before: Tensor
    stepped: Tensor
    """After the step against the gradient, off the sphere."""
    after: Tensor
    angle: float
    """Radians."""


def train() -> list[Step]:
    """Train the neuron, and return what each step did."""
    # The columns of `basis` span the weights of mean zero.
    rows = torch.tensor([[1, -1, 0, 0], [1, 1, -2, 0], [1, 1, 1, -3]], dtype=torch.float64)
    basis = (rows / rows.norm(dim=1, keepdim=True)).T
    start, target = (basis @ torch.tensor(place, dtype=torch.float64) for place in (START, TARGET))
    inputs = torch.tensor(list(product((-1.0, 1.0), repeat=4)), dtype=torch.float64)
    outputs = inputs @ (target / target.norm())
    neuron = nn.Linear(4, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        neuron.weight.copy_(start)
    optimizer = Nero(neuron, lr=LR)
    (beta,) = {group["beta"] for group in optimizer.param_groups}
    steps = []
    for number in range(1, NUM_STEPS + 1):
        before = neuron.weight.detach().clone()
        optimizer.zero_grad()
        (neuron(inputs).squeeze(1) - outputs).abs().mean().backward()
        optimizer.step()
        assert neuron.weight.grad is not None
        average = optimizer.state[neuron.weight]["exp_avg_norm"] / (1 - beta**number) ** 0.5
        stepped = before - LR * neuron.weight.grad / average
        after = neuron.weight.detach().clone()
        # Algorithm 1: all that remains of the step is what the projection leaves.
        torch.testing.assert_close(project(stepped, fan_in_dims=(1,)), after, atol=1e-6, rtol=0)
        angle = turning_angle(before, after, fan_in_dims=(1,)).item()
        steps.append(Step(*(x.squeeze(0) @ basis for x in (before, stepped, after)), angle))
    return steps


def seen(place: Tensor) -> tuple[float, float, float]:
    """Return where a place on the sphere is seen, from its centre, and how near it is."""
    x, y, z = place.tolist()
    up = y * math.cos(TILT) - z * math.sin(TILT)
    return RADIUS * x, -RADIUS * up, y * math.sin(TILT) + z * math.cos(TILT)


def between(start: Tensor, end: Tensor, num: int) -> list[Tensor]:
    """Return ``num`` places on the great circle between two, the last one included."""
    angle = math.acos(min(1.0, float(start @ end)))
    shares = [i / num for i in range(1, num + 1)]
    return [
        (start * math.sin((1 - s) * angle) + end * math.sin(s * angle)) / math.sin(angle)
        for s in shares
    ]


def polyline(places: Sequence[Tensor], kind: str) -> str:
    """Return a line through places on the sphere."""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in map(seen, places))
    return f'<polyline class="{kind}" points="{points}"/>'


def graticule() -> list[str]:
    """Return circles of latitude and longitude, fainter behind the sphere."""
    circles = []
    turn = [2 * math.pi * i / 72 for i in range(73)]
    for latitude in (-60, -30, 0, 30, 60):
        a = math.radians(latitude)
        circles.append(
            [(math.cos(a) * math.sin(t), math.sin(a), math.cos(a) * math.cos(t)) for t in turn]
        )
    for longitude in range(0, 180, 30):
        a = math.radians(longitude)
        circles.append(
            [(math.cos(t) * math.sin(a), math.sin(t), math.cos(t) * math.cos(a)) for t in turn]
        )
    parts = []
    for circle in circles:
        places = [torch.tensor(place, dtype=torch.float64) for place in circle]
        is_front = [seen(place)[2] >= 0 for place in places]
        begin = 0
        for i in range(1, len(places) + 1):
            if i == len(places) or is_front[i] != is_front[begin]:
                kind = "line" if is_front[begin] else "line back"
                parts.append(polyline(places[begin : i + 1], kind))
                begin = i
    return parts


def keyframes(name: str, frames: dict[float, str]) -> str:
    """Return an animation: what holds at which second, repeated for ever."""
    body = " ".join(
        f"{100 * second / SECONDS:.2f}% {{ {what} }}" for second, what in frames.items()
    )
    use = f"animation: {name} {SECONDS:.1f}s linear infinite"
    return f"  @keyframes {name} {{ {body} }}\n  .{name} {{ {use} }}"


def times(number: int) -> tuple[float, float, float]:
    """Return when a step begins, when its turn begins, and when that ends."""
    begin = HOLD + STEP * number
    return begin, begin + 0.35 * STEP, begin + 0.8 * STEP


def appears(name: str, second: float, hidden: str, shown: str) -> str:
    """Return an animation of what is there while the finished picture is held, and comes back later."""
    return keyframes(
        name,
        {
            0: shown,
            HOLD - 0.3: shown,
            HOLD - 0.1: hidden,
            second: hidden,
            second + 0.2: shown,
            SECONDS: shown,
        },
    )


def arrow_of(places: Sequence[tuple[float, Tensor]]) -> tuple[str, str, list[str]]:
    """Return the arrow of the weights, and its way through places at given seconds."""

    def posture(place: Tensor) -> tuple[str, str]:
        x, y, _ = seen(place)
        turn, length = math.degrees(math.atan2(y, x)), math.hypot(x, y)
        head = f"translate({x:.1f}px, {y:.1f}px) rotate({turn:.1f}deg)"
        return f"rotate({turn:.1f}deg) scaleX({(length - 8) / 100:.3f})", head

    shafts = {second: f"transform: {posture(place)[0]}" for second, place in places}
    heads = {second: f"transform: {posture(place)[1]}" for second, place in places}
    shaft, head = (next(iter(frames.values())) for frames in (shafts, heads))
    return shaft, head, [keyframes("shaft", shafts), keyframes("head", heads)]


def bars(steps: Sequence[Step]) -> tuple[list[str], list[str]]:
    """Return one bar per step, as high as its angle, and their animations."""
    left, floor, unit = 306, 196, 420  # units of the picture per radian
    top = floor - unit * LR
    parts = [
        f'<text x="{left}" y="52" class="strong">Nero, lr = {LR}</text>',
        f'<text x="{left}" y="76">turn per step</text>',
        f'<line class="rate" x1="{left}" x2="{left + 130}" y1="{top:g}" y2="{top:g}"/>',
        f'<text x="{left + 136}" y="{top + 5:g}">lr</text>',
    ]
    moves = []
    for number, step in enumerate(steps):
        x, height = left + 14.5 * number, unit * step.angle
        parts.append(
            f'<rect class="bar b{number}" x="{x:g}" y="{floor - height:.1f}" width="10" '
            f'height="{height:.1f}" rx="2"/>'
        )
        moves.append(appears(f"b{number}", times(number)[2], "opacity: 0", "opacity: 1"))
    key = (("weight", "weights"), ("step", "gradient step"), ("drop", "projection"))
    for number, (kind, words) in enumerate(key):
        y = 224 + 24 * number
        parts.append(
            f'<line class="{kind}" x1="{left}" x2="{left + 30}" y1="{y - 5}" y2="{y - 5}"/>'
        )
        parts.append(f'<text x="{left + 40}" y="{y}">{words}</text>')
    return parts, moves


def picture() -> str:
    """Return the whole picture as SVG."""
    steps = train()
    places = [(0.0, steps[-1].after), (HOLD - 0.3, steps[-1].after), (HOLD - 0.1, steps[0].before)]
    lengths = {
        0.0: "stroke-dashoffset: 0",
        HOLD - 0.3: "stroke-dashoffset: 0",
        HOLD - 0.2: "stroke-dashoffset: 100",
    }
    way, parts, moves = [steps[0].before], [], []
    total, gone = sum(step.angle for step in steps), 0.0
    for number, step in enumerate(steps):
        begin, turns, ends = times(number)
        arc = between(step.before, step.after, 6)
        way += arc
        x1, y1, _ = seen(step.before)
        x2, y2, _ = seen(step.stepped)
        x3, y3, _ = seen(step.after)
        there = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        back = f'x1="{x2:.1f}" y1="{y2:.1f}" x2="{x3:.1f}" y2="{y3:.1f}"'
        move = f'<line class="step" {there} marker-end="url(#tip)"/>'
        drop = f'<line class="drop" {back}/>'
        parts.append(f'<g class="s{number}">{move}{drop}</g>')
        moves.append(appears(f"s{number}", begin, "opacity: 0", "opacity: 1"))
        parts.append(f'<circle class="dot d{number}" cx="{x3:.1f}" cy="{y3:.1f}" r="3.5"/>')
        moves.append(appears(f"d{number}", ends, "opacity: 0", "opacity: 1"))
        places += [(turns, step.before)]
        places += [(turns + (ends - turns) * (i + 1) / 6, place) for i, place in enumerate(arc)]
        lengths[turns] = f"stroke-dashoffset: {100 * (1 - gone / total):.1f}"
        gone += step.angle
        lengths[ends] = f"stroke-dashoffset: {100 * (1 - gone / total):.1f}"
    places.append((SECONDS, steps[-1].after))
    lengths[SECONDS] = "stroke-dashoffset: 0"
    shaft, head, arrow_moves = arrow_of(places)
    chart, chart_moves = bars(steps)
    moves += [*arrow_moves, *chart_moves, keyframes("way", lengths)]
    target = torch.tensor(TARGET, dtype=torch.float64)
    ring_x, ring_y, _ = seen(target / target.norm())
    x, y, _ = seen(steps[0].before)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-labelledby="title desc">',
        '<title id="title">A neuron turning on its sphere</title>',
        f'<desc id="desc">{NUM_STEPS} steps of Nero at a learning rate of {LR}. Each step follows '
        "the gradient off the sphere, and the projection brings the weights back, so only a turn remains: "
        f"{min(s.angle for s in steps):.2f} to {max(s.angle for s in steps):.2f} radians.</desc>",
        f"<style>\n{STYLE}\n@media (prefers-reduced-motion: no-preference) {{",
        *moves,
        "}\n</style>",
        '<defs><radialGradient id="shade" cx="0.36" cy="0.3" r="0.8">'
        '<stop offset="0" stop-color="#c5cdf5" stop-opacity="0.35"/>'
        '<stop offset="1" stop-color="#5c6bc0" stop-opacity="0.2"/></radialGradient>'
        '<marker id="tip" viewBox="0 0 10 10" refX="7" refY="5" markerWidth="3.6" markerHeight="3.6" '
        'orient="auto"><path class="tip" d="M0 0L10 5L0 10z"/></marker></defs>',
        f'<g transform="translate({CENTRE[0]} {CENTRE[1]})">',
        f'<circle class="sphere" r="{RADIUS}"/>',
        *graticule(),
        f'<circle class="ring" cx="{ring_x:.1f}" cy="{ring_y:.1f}" r="9"/>',
        polyline(way, "trail way").replace("<polyline", '<polyline pathLength="100"'),
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>',
        *parts,
        f'<line class="weight shaft" x2="100" style="{shaft}"/>',
        f'<path class="head" d="M1 0L-13 -6.5L-13 6.5z" style="{head}"/>',
        "</g>",
        *chart,
        "</svg>\n",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    Path(__file__).with_name("turning-neuron.svg").write_text(picture())
