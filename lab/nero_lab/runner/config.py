"""The configuration of one run, and the name and command that follow from it."""

import dataclasses
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nero_lab.engine.errors import ConfigError
from nero_lab.engine.optimizers import OPTIMIZERS, Entry, find_optimizer
from nero_lab.engine.references import is_reference
from nero_lab.engine.schedules import Constant, Schedule
from nero_lab.engine.task import Recipe, Task
from nero_lab.runner.options import applied, check_option, check_variant, in_file_name
from nero_lab.tasks import find_task, folder_of

MAX_SEED = 2**32 - 1
"""What NumPy's generator takes."""


@dataclass(frozen=True)
class RunConfig:
    """One run: a task, an optimizer and a seed, at a scale.

    Args:
        task: name of a task, or ``package.module:TASK`` for your own.
        scale: "paper", "cpu" or "smoke"; your own task may have others.
        optimizer: name of an optimizer, or ``package.module:function`` for your own.
        lr: learning rate; the task's published best rate, or the optimizer's default, if None.
        seed: of weights, batches and everything else random.
        variant: name of a variant of the task.
        options: changes to the options of the recipe, or to its batch_size, clip_norm, precision or
            schedule.
        epochs: instead of the recipe's.

    Example:
        >>> RunConfig("mnist-deep", optimizer="adam", seed=2).name
        'mnist-deep/cpu/adam-lr0.001-seed2'
    """

    task: str
    scale: str = "cpu"
    optimizer: str = "nero"
    lr: float | None = None
    seed: int = 0
    variant: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int | None = None

    def __post_init__(self) -> None:
        task = self.task_spec
        _check("scale", self.scale, task.recipes)
        if not is_reference(self.optimizer):
            _check("optimizer", self.optimizer, OPTIMIZERS)
        entry = (
            self.entry
        )  # now, so that one that cannot be imported is refused before anything is done
        if self.variant is not None:
            _check("variant", self.variant, task.variants)
            check_variant(task.variants[self.variant], task)
        checked = {name: check_option(name, self.options[name], task) for name in self.options}
        object.__setattr__(self, "options", checked)
        if self.epochs is not None and self.epochs < 1:
            raise ConfigError(f"a run needs at least one epoch, not {self.epochs}")
        if self.lr is not None and not 0 <= self.lr < math.inf:
            raise ConfigError(f"a learning rate must be finite and not negative, not {self.lr}")
        if not 0 <= self.seed <= MAX_SEED:
            raise ConfigError(f"a seed must be between 0 and {MAX_SEED}, not {self.seed}")
        if self.lr is None:
            lr = task.lrs.get(self.optimizer, entry.lr)
            object.__setattr__(self, "lr", lr)

    @property
    def task_spec(self) -> Task:
        """The task itself."""
        return find_task(self.task)

    @property
    def entry(self) -> Entry:
        """How the optimizer is set up."""
        return find_optimizer(self.optimizer)

    @property
    def grid(self) -> tuple[float, ...]:
        """The learning rates of a sweep of this optimizer on this task."""
        return self.task_spec.grids.get(self.optimizer, self.entry.grid)

    @property
    def recipe(self) -> Recipe:
        """The recipe with the changes that this run makes to it."""
        task = self.task_spec
        variant = task.variants[self.variant] if self.variant else {}
        recipe = applied({**variant, **self.options}, task.recipes[self.scale])
        return dataclasses.replace(
            recipe,
            epochs=recipe.epochs if self.epochs is None else self.epochs,
            schedule=_warmup_only(recipe.schedule) if self.entry.warmup_only else recipe.schedule,
        )

    @property
    def name(self) -> str:
        """Where the records of this run lie, below the folder of all runs."""
        parts = [self.variant] if self.variant else []
        parts += [self.optimizer.replace(":", "."), f"lr{self.lr:g}", f"seed{self.seed}"]
        parts += [f"{name}={in_file_name(value)}" for name, value in sorted(self.options.items())]
        parts += [f"epochs{self.epochs}"] if self.epochs is not None else []
        return f"{folder_of(self.task)}/{self.scale}/{'-'.join(parts)}"

    @property
    def command(self) -> str:
        """The command that makes this run.

        Example:
            >>> RunConfig("mnist-deep").command
            'nero-lab run mnist-deep --scale cpu --optimizer nero --lr 0.001 --seed 0'
        """
        words = ["nero-lab", "run", self.task, "--scale", self.scale]
        words += ["--optimizer", self.optimizer, "--lr", f"{self.lr:g}", "--seed", str(self.seed)]
        words += ["--variant", self.variant] if self.variant else []
        for name, value in sorted(self.options.items()):
            words += ["--set", f"{name}={value}"]
        words += ["--epochs", str(self.epochs)] if self.epochs is not None else []
        return shlex.join(words)


def _warmup_only(schedule: Schedule) -> Schedule:
    return Constant(warmup=getattr(schedule, "warmup", 0.0))


def _check(what: str, name: str, known: Mapping[str, Any]) -> None:
    if name not in known:
        raise ConfigError(f"unknown {what} {name!r}; choose from: {', '.join(known) or 'none'}")
