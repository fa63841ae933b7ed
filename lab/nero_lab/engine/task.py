"""What a task is: a description, a recipe at each scale, and an experiment to train.

The description is plain data, so that ``nero-lab list`` and the report need not build a model. The
experiment is what the one training loop (``loop.py``) drives.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from nero_lab.engine import batching
from nero_lab.engine.schedules import Constant, Schedule

Sums = dict[str, tuple[Tensor | float, int]]
"""A total and a count for each quantity; the loop adds them up over steps and ranks."""

PAPER_GRID = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""The learning rates that the paper tunes over."""

PAPER_GRIDS = dict.fromkeys(("nero", "sgd", "adam", "lamb"), PAPER_GRID)
"""The same for each optimizer of its Table 1."""

FINE_GRID = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1)
"""The learning rates of the paper's ablations."""

NOT_IN_PAPER = "not in the paper"
"""The figure reference of tasks that are not in the paper."""

Take = Callable[[str, Tensor], None]
"""``take(player, loss)``: back-propagate and let the optimizers of one player step."""


@dataclass(frozen=True)
class Metric:
    """The score of a task, as the report names and orders it."""

    name: str  # a key of an epoch's record: "valid_accuracy"
    label: str  # an axis label: "validation accuracy"
    higher_is_better: bool = False
    log: bool = False  # draw on a logarithmic axis
    training_label: str = ""  # of its counterpart in training, if not the label with "training"
    target: float | None = None  # up to which a public yardstick counts steps, at paper scale

    @property
    def tested(self) -> "Metric | None":
        """The same score on a test split, if it is one of validation: see ``Experiment.score_test``."""
        if not self.name.startswith("valid_"):
            return None
        name = "test_" + self.name.removeprefix("valid_")
        return replace(self, name=name, label=self.label.replace("validation", "test"))


@dataclass(frozen=True)
class Recipe:
    """The budget of a run: how long, in what batches, at what rate, and how large.

    Args:
        epochs: length of the run; each experiment defines its own epoch.
        batch_size: examples per step, over all ranks.
        schedule: factor on the learning rate, set at every step.
        clip_norm: largest norm of the gradient of a player, if any; or that of some optimizers, by name.
        precision: what matrix products are computed in; weights are always float32.
        options: what the task leaves open: widths, depths, numbers of examples.
        num_step_records: lines that a run's record has for steps, beside those for epochs: 60 draw a curve.
        takes: the time of one run, as it was seen.
        shrunk: what is smaller than at paper scale, in one line.
    """

    epochs: int
    batch_size: int
    schedule: Schedule = field(default_factory=Constant)
    clip_norm: float | Mapping[str, float] | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    options: Mapping[str, Any] = field(default_factory=dict)
    num_step_records: int = 60
    takes: str = ""
    shrunk: str = ""


@dataclass(frozen=True)
class Setting:
    """Where and how one run happens."""

    recipe: Recipe
    seed: int
    data_dir: Path
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    rank: int = 0
    world_size: int = 1
    optimizer: str = ""

    @property
    def clip_norm(self) -> float | None:
        """The largest norm of a gradient that the optimizer is given, if there is one."""
        found = self.recipe.clip_norm
        return found.get(self.optimizer) if isinstance(found, Mapping) else found

    def option(self, name: str) -> Any:
        """Return an option of the recipe by name."""
        return self.recipe.options[name]

    def shuffled(self, num_items: int, epoch: int, start: int) -> Iterator[tuple[int, Tensor]]:
        """Yield the index of each batch of an epoch and this rank's items of it."""
        return batching.shuffled(
            num_items,
            self.recipe.batch_size,
            seed=self.seed,
            epoch=epoch,
            start=start,
            rank=self.rank,
            world_size=self.world_size,
        )

    def in_order(self, num_items: int, batch_size: int) -> Iterator[Tensor]:
        """Yield this rank's share of all items once, for evaluation."""
        return batching.in_order(num_items, batch_size, rank=self.rank, world_size=self.world_size)


class Experiment(ABC):
    """What the loop trains.

    ``players`` are the networks that have an optimizer of their own: one for most tasks, two for a
    GAN. Under torchrun the loop replaces each with its ``DistributedDataParallel``, so an experiment
    calls them through ``self.players``.

    Resuming must be bit-exact, so an experiment draws its batches from ``(seed, epoch, index)``
    alone, takes other randomness from torch's global generator, and keeps whatever else changes during
    training in ``state_dict``.
    """

    players: dict[str, nn.Module]
    steps_per_epoch: int

    @abstractmethod
    def batches(self, epoch: int, start: int) -> Iterator[Any]:
        """Yield this rank's part of each batch of an epoch, from batch ``start`` on."""

    @abstractmethod
    def advance(self, batch: Any, take: Take) -> Sums:
        """Train on one batch, calling ``take`` for each update, and return what was seen."""

    @abstractmethod
    def score(self) -> Sums:
        """Score the players on this rank's part of the data; ``evaluate`` has prepared them."""

    def score_test(self) -> Sums:
        """Score the players on data that plays no part in choosing rates, if there is such.

        It is called once, after the last epoch. The report chooses rates by ``score`` and compares
        optimizers by this.
        """
        return {}

    @torch.no_grad()
    def evaluate(self, *, test: bool = False) -> Sums:
        """Score the players, in eval mode and without gradients.

        Without wrappers too: DDP would wait for the other ranks at every batch, and they may have one
        fewer.
        """
        players = self.players
        self.players = {name: unwrapped(player) for name, player in players.items()}
        for player in self.players.values():
            player.eval()
        try:
            return self.score_test() if test else self.score()
        finally:
            for player in self.players.values():
                player.train()
            self.players = players

    def derive(self, averages: dict[str, float]) -> dict[str, float]:
        """Return further scores from averages; perplexity from the loss, say."""
        return {}

    def attach(self, optimizers: Mapping[str, list[torch.optim.Optimizer]]) -> None:  # noqa: B027
        """Receive the optimizers of the players; only for what steps them itself."""

    def state_dict(self) -> dict[str, Any]:
        """Return what training changes apart from players, optimizers and global generators."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Restore what ``state_dict`` returned."""


def unwrapped(player: nn.Module) -> nn.Module:
    """Return a player without its wrapper, for passes that leave no gradients to average."""
    return player.module if isinstance(player, DistributedDataParallel) else player


@dataclass(frozen=True)
class Task:
    """One experiment of the paper, of ours, or of a user's own.

    Args:
        name: what ``nero-lab run`` calls it; one of a user's own goes by ``package.module:TASK``.
        title: one line of what is trained on what.
        metric: the score.
        recipes: by scale; those of the lab have "paper", "cpu" (which is the default) and "smoke".
        build: makes the experiment.
        figure: where it is in the paper.
        data: the name of the data set in ``nero_lab.data.files``, or "" for none.
        lrs: the published best learning rate of each optimizer.
        grids: the learning rates of a sweep, for optimizers whose rates the paper tuned on this task.
        variants: named changes to a recipe and its options that a figure compares:
            ``{"sigma-1": {"sigma": 1.0}}``.
        paper_parameters: how many the network has at paper scale, if the cpu scale shrinks it.
        differences: what differs from the paper or from its authors' code, one sentence each.
    """

    name: str
    title: str
    metric: Metric
    recipes: Mapping[str, Recipe]
    build: Callable[[Setting], Experiment]
    figure: str = NOT_IN_PAPER
    data: str = ""
    lrs: Mapping[str, float] = field(default_factory=dict)
    grids: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paper_parameters: int | None = None
    differences: tuple[str, ...] = ()
