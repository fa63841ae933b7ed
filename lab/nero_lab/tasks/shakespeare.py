"""A character GPT on Tiny Shakespeare: a modern network, small enough for wide comparisons."""

from collections.abc import Iterator

import torch

from nero_lab.data import shakespeare
from nero_lab.data.files import folder
from nero_lab.engine.batching import generator
from nero_lab.engine.schedules import Cosine
from nero_lab.engine.task import Metric, Recipe, Setting, Task
from nero_lab.experiments.next_token import NextToken, Windows
from nero_lab.models.block import MakePerceptron, Perceptron
from nero_lab.models.gpt import GPT


class Shakespeare(NextToken):
    """Next-character prediction on random windows of the text.

    Args:
        setting: with the recipe whose options say how large the network is.
        perceptron: makes the second half of each block of it.
    """

    def __init__(self, setting: Setting, *, perceptron: MakePerceptron = Perceptron) -> None:
        self.context: int = setting.option("context")
        self.text = shakespeare.load(
            folder("shakespeare", setting.data_dir),
            num_characters=setting.option("num_characters"),
        )
        self.steps_per_epoch = setting.option("steps_per_epoch")
        model = GPT(
            vocabulary=len(self.text.alphabet),
            context=self.context,
            num_layers=setting.option("num_layers"),
            width=setting.option("width"),
            num_heads=setting.option("num_heads"),
            dropout=setting.option("dropout"),
            perceptron=perceptron,
        )
        super().__init__(setting, model)

    def batches(self, epoch: int, start: int) -> Iterator[Windows]:
        """Yield random windows of the training text."""
        setting = self.setting
        last = len(self.text.train) - self.context
        for index in range(start, self.steps_per_epoch):
            starts = torch.randint(
                last, (setting.recipe.batch_size,), generator=generator(setting.seed, epoch, index)
            )
            yield shakespeare.windows(
                self.text.train, starts[setting.rank :: setting.world_size], self.context
            )

    def valid_windows(self) -> Iterator[Windows]:
        """Yield windows that are spread evenly over the validation text."""
        num_windows = self.setting.option("num_valid_characters") // self.context
        last = len(self.text.valid) - self.context - 1
        starts = torch.linspace(0, last, num_windows, dtype=torch.float64).long()
        for items in self.setting.in_order(num_windows, self.setting.recipe.batch_size):
            yield shakespeare.windows(self.text.valid, starts[items], self.context)


SHAKESPEARE = Task(
    name="shakespeare",
    title="a character GPT on Tiny Shakespeare",
    data="shakespeare",
    metric=Metric("valid_loss", "validation loss (nats per character)"),
    recipes={
        "paper": Recipe(
            epochs=50,
            batch_size=64,
            schedule=Cosine(warmup=1 / 50),
            precision="bfloat16",
            options={
                "num_characters": None,
                "num_valid_characters": 2**16,
                "steps_per_epoch": 100,
                "context": 256,
                "num_layers": 6,
                "width": 384,
                "num_heads": 6,
                "dropout": 0.2,
            },
            takes="not run",
        ),
        "cpu": Recipe(
            epochs=6,
            batch_size=32,
            schedule=Cosine(warmup=1 / 12),
            precision="bfloat16",
            options={
                "num_characters": None,
                "num_valid_characters": 2**15,
                "steps_per_epoch": 100,
                "context": 64,
                "num_layers": 4,
                "width": 128,
                "num_heads": 4,
                "dropout": 0.0,
            },
            takes="about 1 minute on one core with AMX",
        ),
        "mini": Recipe(
            epochs=4,
            batch_size=16,
            schedule=Cosine(warmup=1 / 8),
            options={
                "num_characters": None,
                "num_valid_characters": 2**14,
                "steps_per_epoch": 75,
                "context": 64,
                "num_layers": 3,
                "width": 96,
                "num_heads": 3,
                "dropout": 0.0,
            },
            num_step_records=12,
            takes="20 to 60 seconds on one core",
            shrunk="3 layers of width 96 instead of 6 of width 384, context 64, 300 steps, batch size 16",
        ),
        "smoke": Recipe(
            epochs=2,
            batch_size=8,
            schedule=Cosine(warmup=1 / 12),
            options={
                "num_characters": 20_000,
                "num_valid_characters": 1024,
                "steps_per_epoch": 20,
                "context": 32,
                "num_layers": 2,
                "width": 32,
                "num_heads": 2,
                "dropout": 0.0,
            },
            takes="seconds",
        ),
    },
    build=Shakespeare,
    variants={"long": {"epochs": 30, "precision": "float32"}},
    differences=(
        "This experiment is not in the paper. The paper scale is the usual size for a character GPT on "
        "this text.",
        "Validation windows are spread evenly over the last tenth of the text.",
        "The variant long trains for 3,000 steps instead of 600, in float32.",
    ),
)
