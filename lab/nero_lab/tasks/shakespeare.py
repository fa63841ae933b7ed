"""A character GPT on Tiny Shakespeare: a modern network, small enough for wide comparisons."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from nero_lab.data import shakespeare
from nero_lab.data.files import folder
from nero_lab.engine.batching import generator
from nero_lab.engine.schedules import Cosine
from nero_lab.engine.task import Experiment, Metric, Recipe, Setting, Sums, Take, Task
from nero_lab.models.gpt import GPT

Windows = tuple[Tensor, Tensor]


class Shakespeare(Experiment):
    """Next-character prediction on random windows of the text."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.context: int = setting.option("context")
        self.text = shakespeare.load(
            folder("shakespeare", setting.data_dir),
            num_characters=setting.option("num_characters"),
        )
        self.players = {
            "gpt": GPT(
                vocabulary=len(self.text.alphabet),
                context=self.context,
                num_layers=setting.option("num_layers"),
                width=setting.option("width"),
                num_heads=setting.option("num_heads"),
                dropout=setting.option("dropout"),
            )
        }
        self.steps_per_epoch = setting.option("steps_per_epoch")

    def batches(self, epoch: int, start: int) -> Iterator[Windows]:
        """Yield random windows of the training text."""
        setting = self.setting
        last = len(self.text.train) - self.context
        for index in range(start, self.steps_per_epoch):
            starts = torch.randint(
                last, (setting.recipe.batch_size,), generator=generator(setting.seed, epoch, index)
            )
            yield self._windows(self.text.train, starts[setting.rank :: setting.world_size])

    def advance(self, batch: Windows, take: Take) -> Sums:
        """Train on one batch of windows."""
        loss = self._loss(batch)
        take("gpt", loss)
        count = batch[1].numel()
        return {"loss": (loss.detach() * count, count)}

    def score(self) -> Sums:
        """Score windows that are spread evenly over the validation text, the same for every seed."""
        setting = self.setting
        num_windows = setting.option("num_valid_characters") // self.context
        last = len(self.text.valid) - self.context - 1
        starts = torch.linspace(0, last, num_windows, dtype=torch.float64).long()
        total, count = torch.zeros((), device=setting.device), 0
        for items in setting.in_order(num_windows, setting.recipe.batch_size):
            batch = self._windows(self.text.valid, starts[items])
            total += self._loss(batch) * batch[1].numel()
            count += batch[1].numel()
        return {"loss": (total, count)}

    def _windows(self, text: Tensor, starts: Tensor) -> Windows:
        inputs, targets = shakespeare.windows(text, starts, self.context)
        return inputs.to(self.setting.device), targets.to(self.setting.device)

    def _loss(self, batch: Windows) -> Tensor:
        inputs, targets = batch
        logits = self.players["gpt"](inputs)
        return cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


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
        "This experiment is not in the paper; the paper scale is the size that is customary for a "
        "character GPT on this text.",
        "Validation reads windows that are spread evenly over the last tenth of the text.",
        "The variant long trains for 3,000 steps instead of 600, in float32.",
    ),
)
