"""What the tests of several text tasks need."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nero_lab.data.multi30k import PAD
from nero_lab.engine.task import Setting, Task


def build(task: Task, data_dir: Path, *, rank: int = 0, world_size: int = 1) -> Any:
    torch.manual_seed(0)
    recipe = task.recipes["smoke"]
    return task.build(Setting(recipe, 0, data_dir, rank=rank, world_size=world_size))


def rows(batch: tuple[Tensor, Tensor]) -> list[tuple[tuple[int, ...], ...]]:
    """Return the pairs of a batch without padding, in one order."""
    return sorted(
        tuple(tuple(word for word in row.tolist() if word != PAD) for row in pair)
        for pair in zip(*batch, strict=True)
    )


def assert_no_word_sees_a_later_one(logits: Callable[[Tensor], Tensor]) -> None:
    """Change the seventh of nine words (of 20): only what is predicted from there on may change."""
    tokens = torch.randint(1, 20, (2, 9))
    changed = tokens.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 19 + 1
    before, after = logits(tokens), logits(changed)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert (before[:, 6:] - after[:, 6:]).abs().amax() > 1e-3
