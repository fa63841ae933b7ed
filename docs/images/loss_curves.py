"""Draw docs/images/loss-curves.svg: validation loss of a small GPT, from lab/results/shakespeare/cpu.jsonl.

    python docs/images/loss_curves.py

Four optimizers for 600 steps: the mean of three seeds, and a band from the lowest to the highest. AdamW and
Muon are drawn at the learning rate with the lowest mean at the end, out of all that were tried with three
seeds; the presets are drawn at their defaults. The file follows the reader's colour scheme.
tests/test_figures.py fails if it is not what the records say.
"""

import json
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

RECORDS = Path(__file__).parents[2] / "lab" / "results" / "shakespeare" / "cpu.jsonl"
NUM_SEEDS = 3
# Of each optimizer: the label, and its colours on light and on dark pages.
LOOKS = {
    "adamw": ("AdamW", "#3c4250", "#d5d9e3"),
    "nero-rows": ("Nero, rows", "#c2571a", "#ffb27a"),
    "muon": ("Muon", "#7b3fb5", "#c9a6f5"),
    "nero-polar": ("Nero, polar", "#b3001b", "#ff7d8a"),
}
WIDTH, HEIGHT = 480, 330
LEFT, RIGHT, TOP, BOTTOM = 44, 304, 44, 278
LOW, HIGH, LAST_STEP = 1.6, 2.6, 600
GAP = 20  # between the labels of two lines


@dataclass(frozen=True)
class Curve:
    """The runs of one optimizer at one learning rate: mean, lowest and highest loss by step."""

    optimizer: str
    lr: float
    mean: dict[int, float]
    low: dict[int, float]
    high: dict[int, float]


def curves() -> list[Curve]:
    """Return the best curve of each optimizer, as the records have them."""
    runs: dict[tuple[str, float], list[dict[int, float]]] = defaultdict(list)
    for line in RECORDS.read_text().splitlines():
        run = json.loads(line)
        is_plain = run["variant"] is None and not run["options"]
        if run["optimizer"] in LOOKS and is_plain and run["end"]["status"] == "finished":
            losses = {epoch["step"]: epoch["valid_loss"] for epoch in run["epoch"]}
            runs[run["optimizer"], run["lr"]].append(losses)
    found = []
    for (optimizer, lr), several in runs.items():
        if len(several) == NUM_SEEDS:
            by_step = {step: [losses[step] for losses in several] for step in several[0]}
            mean = {step: sum(losses) / NUM_SEEDS for step, losses in by_step.items()}
            low = {step: min(losses) for step, losses in by_step.items()}
            high = {step: max(losses) for step, losses in by_step.items()}
            found.append(Curve(optimizer, lr, mean, low, high))
    return [
        min((c for c in found if c.optimizer == name), key=lambda c: c.mean[LAST_STEP])
        for name in LOOKS
    ]


def x_of(step: float) -> float:
    """Return where a step is."""
    return LEFT + (RIGHT - LEFT) * step / LAST_STEP


def y_of(loss: float) -> float:
    """Return where a loss is."""
    return BOTTOM - (BOTTOM - TOP) * (loss - LOW) / (HIGH - LOW)


def points(losses: dict[int, float]) -> list[str]:
    """Return the points of a line."""
    return [f"{x_of(step):.1f},{y_of(loss):.1f}" for step, loss in sorted(losses.items())]


def label_heights(ends: list[float]) -> list[float]:
    """Return where labels go, from top to bottom, so that no two touch."""
    heights = sorted(ends)
    for _ in range(50):  # push neighbours apart until there is room
        for i, (upper, lower) in enumerate(pairwise(heights)):
            missing = GAP - (lower - upper)
            if missing > 0:
                heights[i] -= missing / 2
                heights[i + 1] += missing / 2
    return heights


def style() -> str:
    """Return the style, for light pages and for dark ones."""
    rules = [
        'text { font: 16px system-ui, "Segoe UI", Roboto, sans-serif; fill: #3c4250 }',
        ".grid { stroke: #8791a5; stroke-width: 1; opacity: 0.35 }",
        ".lead { fill: none; stroke: #8791a5; stroke-width: 1 }",
        ".curve { fill: none; stroke-width: 2.5; stroke-linejoin: round }",
        ".band { opacity: 0.25 }",
        ".name { font-weight: 600 }",
    ]
    dark = ["text { fill: #c3c9d6 }"]
    for name, (_, on_light, on_dark) in LOOKS.items():
        for colour, found in ((on_light, rules), (on_dark, dark)):
            found.append(f".curve.{name} {{ stroke: {colour} }}")
            found.append(f".band.{name}, .name.{name} {{ fill: {colour} }}")
    return "\n".join([*rules, "@media (prefers-color-scheme: dark) {", *dark, "}"])


def picture() -> str:
    """Return the whole picture as SVG."""
    found = curves()
    parts = ['<text x="8" y="22">validation loss, nats per character</text>']
    for tenths in range(16, 27, 2):
        y = y_of(tenths / 10)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 5:.1f}" text-anchor="end">{tenths / 10}</text>')
    for step in range(100, LAST_STEP + 1, 100):
        parts.append(
            f'<text x="{x_of(step):.1f}" y="{BOTTOM + 22}" text-anchor="middle">{step}</text>'
        )
    parts.append(f'<text x="{x_of(350):.1f}" y="{BOTTOM + 44}" text-anchor="middle">step</text>')
    for curve in found:
        band = [*points(curve.low), *reversed(points(curve.high))]
        parts.append(f'<polygon class="band {curve.optimizer}" points="{" ".join(band)}"/>')
        line = " ".join(points(curve.mean))
        parts.append(f'<polyline class="curve {curve.optimizer}" points="{line}"/>')
    by_end = sorted(found, key=lambda curve: -curve.mean[LAST_STEP])
    ends = [y_of(curve.mean[LAST_STEP]) for curve in by_end]
    for curve, end, height in zip(by_end, ends, label_heights(ends), strict=True):
        words = f"{LOOKS[curve.optimizer][0]} {curve.mean[LAST_STEP]:.2f}"
        way = ((2, end), (8, end), (16, height), (20, height))
        lead = " ".join(f"{RIGHT + right},{y:.1f}" for right, y in way)
        parts.append(f'<polyline class="lead" points="{lead}"/>')
        parts.append(
            f'<text class="name {curve.optimizer}" x="{RIGHT + 24}" y="{height + 5:.1f}">{words}</text>'
        )
    told = ", ".join(
        f"{LOOKS[c.optimizer][0]} (learning rate {c.lr:g}) {c.mean[LAST_STEP]:.2f}" for c in by_end
    )
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-labelledby="title desc">',
        '<title id="title">Validation loss of a small GPT over 600 steps</title>',
        f'<desc id="desc">Mean of {NUM_SEEDS} seeds after {LAST_STEP} steps: {told}. '
        "Bands are the range over seeds.</desc>",
        f"<style>\n{style()}\n</style>",
        *parts,
        "</svg>\n",
    ])  # fmt: skip


if __name__ == "__main__":
    Path(__file__).with_name("loss-curves.svg").write_text(picture())
