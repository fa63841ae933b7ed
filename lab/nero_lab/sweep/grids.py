"""The runs of a sweep: every combination of optimizer, learning rate, seed and variant."""

from collections.abc import Mapping, Sequence
from typing import Any

from nero_lab.engine.errors import ConfigError
from nero_lab.runner.config import RunConfig


def grid(
    task: str,
    *,
    scale: str = "cpu",
    optimizers: Sequence[str] = ("nero",),
    lrs: Sequence[float] | None = None,
    num_seeds: int = 1,
    variants: Sequence[str | None] = (None,),
    options: Mapping[str, Any] | None = None,
    epochs: int | None = None,
) -> list[RunConfig]:
    """Return every run of a sweep, one seed of all of them before the next seed.

    Args:
        task: name of a task.
        scale: "paper", "cpu" or "smoke".
        optimizers: names of optimizers.
        lrs: rates for each; each optimizer's own grid if None.
        num_seeds: seeds count from 0.
        variants: names of variants of the task; None is the task without one.
        options: changes to the options of the recipe.
        epochs: instead of the recipe's.

    Example:
        >>> [config.name for config in grid("mnist-deep", lrs=[0.01, 0.1])]
        ['mnist-deep/cpu/nero-lr0.01-seed0', 'mnist-deep/cpu/nero-lr0.1-seed0']
    """
    if num_seeds < 1:
        raise ConfigError(f"a sweep needs at least one seed, not {num_seeds}")
    named = {
        config.name: config
        for seed in range(num_seeds)
        for variant in variants
        for optimizer in optimizers
        for lr in lrs or RunConfig(task, scale, optimizer).grid
        for config in [RunConfig(task, scale, optimizer, lr, seed, variant, options or {}, epochs)]
    }
    return list(named.values())
