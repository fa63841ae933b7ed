"""The character GPT at ten sizes and lengths, to see whether the best learning rate transfers."""

from dataclasses import replace
from typing import Any

from nero_lab.engine.task import Recipe, Task
from nero_lab.tasks.shakespeare import SHAKESPEARE, Shakespeare

_STEPS_PER_EPOCH = 100
_HEAD_WIDTH = 32


def _short(scale: str, *, takes: str, **changes: Any) -> Recipe:
    recipe = SHAKESPEARE.recipes[scale]
    return replace(recipe, precision="float32", takes=takes, **changes)


def _variants() -> dict[str, dict[str, int]]:
    widths = {
        f"width-{width}": {"width": width, "num_heads": width // _HEAD_WIDTH}
        for width in (64, 256, 512)
    }
    depths = {f"layers-{count}": {"num_layers": count} for count in (2, 8, 16)}
    lengths = {
        f"steps-{count}": {"epochs": count // _STEPS_PER_EPOCH} for count in (600, 1200, 3000)
    }
    return {**widths, **depths, **lengths}


SHAKESPEARE_TRANSFER = Task(
    name="shakespeare-transfer",
    title="one learning rate for several widths, depths and run lengths",
    data=SHAKESPEARE.data,
    metric=SHAKESPEARE.metric,
    recipes={
        "paper": _short("paper", takes="not run"),
        "cpu": _short("cpu", takes="30 seconds to 10 minutes on one core", epochs=3, batch_size=16),
        "mini": _short(
            "mini",
            takes="10 to 60 seconds on one core",
            shrunk="3 layers of width 96 instead of 6 of width 384, context 64, 400 steps, batch size 16",
            epochs=4,
            options={**SHAKESPEARE.recipes["mini"].options, "steps_per_epoch": _STEPS_PER_EPOCH},
        ),
        "smoke": _short("smoke", takes="seconds"),
    },
    build=Shakespeare,
    variants=_variants(),
    differences=(
        "This experiment is not in the paper. It is the task shakespeare in float32; at cpu scale, with "
        "half the batch size and 300 steps; at mini scale, with 400 steps. Each variant changes only the "
        "width, the number of layers or the number of steps.",
        "Heads have width 32, so wider networks have more of them. Variants are named for the cpu and "
        "mini scales.",
    ),
)
