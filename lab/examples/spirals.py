"""A custom task for ``nero-lab``: tell two spirals apart.

In the folder of this file:

    nero-lab run spirals:TASK --scale smoke
    nero-lab sweep spirals:TASK --optimizers nero,adam --seeds 3
    nero-lab report --tasks spirals:TASK
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from nero_lab.engine.batching import generator, num_batches
from nero_lab.engine.schedules import Cosine
from nero_lab.engine.task import Experiment, Metric, Recipe, Setting, Sums, Take, Task

Points = tuple[Tensor, Tensor]


def draw_spirals(num_points: int, seed: int) -> Points:
    """Return points of the plane and the spiral that each is from."""
    source = generator(seed)
    spiral = torch.arange(num_points) % 2
    turn = 3 * math.pi * torch.rand(num_points, generator=source).sqrt()
    angle = turn + math.pi * spiral
    noise = 0.2 * torch.randn(num_points, 2, generator=source)
    return (torch.stack([angle.cos(), angle.sin()], 1) * turn[:, None] + noise) / 5, spiral


class Spirals(Experiment):
    """A perceptron and its points; the loop does everything else."""

    def __init__(self, setting: Setting) -> None:
        width, num_points = setting.option("width"), setting.option("num_points")
        layers = [nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
        self.players = {"model": nn.Sequential(*layers, nn.Linear(width, 2))}
        self.setting = setting
        self.train, self.valid = draw_spirals(num_points, 0), draw_spirals(num_points, 1)
        self.steps_per_epoch = num_batches(num_points, setting.recipe.batch_size)

    def batches(self, epoch: int, start: int) -> Iterator[Points]:
        """Yield batches that depend on seed, epoch and index alone, so that a run can resume."""
        for _, items in self.setting.shuffled(len(self.train[0]), epoch, start):
            yield self.train[0][items], self.train[1][items]

    def advance(self, batch: Points, take: Take) -> Sums:
        """Take one step, and return totals and counts of what was seen."""
        loss, seen = self._judge(batch)
        take("model", loss)
        return seen

    def score(self) -> Sums:
        """Score the other half of the points."""
        return self._judge(self.valid)[1]

    def _judge(self, batch: Points) -> tuple[Tensor, Sums]:
        points, spiral = (part.to(self.setting.device) for part in batch)
        logits = self.players["model"](points)
        loss, count = cross_entropy(logits.float(), spiral), len(spiral)
        correct = (logits.argmax(1) == spiral).sum()
        return loss, {"loss": (loss.detach() * count, count), "accuracy": (correct, count)}


TASK = Task(
    name="spirals",
    title="a perceptron that tells two spirals apart",
    metric=Metric("valid_accuracy", "validation accuracy", higher_is_better=True),
    recipes={
        "cpu": Recipe(20, 32, schedule=Cosine(), options={"width": 64, "num_points": 2048}),
        "smoke": Recipe(2, 32, schedule=Cosine(), options={"width": 16, "num_points": 256}),
    },
    build=Spirals,
)
