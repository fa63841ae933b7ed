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
        "smoke": _short("smoke", takes="seconds"),
    },
    build=Shakespeare,
    variants=_variants(),
    differences=(
        "This experiment is not in the paper. It is the task shakespeare with half the batch size, 300 "
        "steps and float32. Each variant changes only the width, the number of layers or the number of "
        "steps.",
        "Heads have width 32, so wider networks have more of them. Variants are named for the cpu scale.",
    ),
)
