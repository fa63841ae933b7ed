"""Words with Zipf frequencies, most of them rare, and a loss whose lowest possible value is known."""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from nero_lab.engine.batching import generator
from nero_lab.engine.schedules import Cosine
from nero_lab.engine.task import Metric, Recipe, Setting, Sums, Task
from nero_lab.experiments.next_token import NextToken, Windows


class Language(NamedTuple):
    """A language in which a word's class decides about the class of the next word.

    Words are numbered by frequency: within its class, a word is drawn in proportion to 1 / (1 + number).
    """

    class_of: Tensor
    """The class of each word."""
    next_class: Tensor
    """The probability of each next class (class, next class)."""
    words: Tensor
    """The probability of each word, given its class."""

    def draw(self, num_pairs: int, chance: torch.Generator) -> Windows:
        """Draw pairs of words, each pair as a window with one position."""
        frequencies = 1 / torch.arange(1, len(self.words) + 1, dtype=torch.float64)
        first = torch.multinomial(frequencies, num_pairs, replacement=True, generator=chance)
        classes = torch.multinomial(self.next_class[self.class_of[first]], 1, generator=chance)
        second = torch.empty_like(first)
        for number in classes.unique().tolist():
            here = (classes == number).squeeze(1)
            members = torch.where(self.class_of == number, self.words, 0.0)
            second[here] = torch.multinomial(
                members, int(here.sum()), replacement=True, generator=chance
            )
        return first.unsqueeze(1), second.unsqueeze(1)

    def entropy(self, pairs: Windows) -> Tensor:
        """Return the mean of -log p(second | first), in nats: no model can expect less."""
        first, second = (tokens.flatten() for tokens in pairs)
        next_class = self.class_of[second]
        chances = self.next_class[self.class_of[first], next_class] * self.words[second]
        return -chances.log().mean()


def language(num_words: int, num_classes: int) -> Language:
    """Make the language of this size; it is the same in every run."""
    chance = torch.Generator().manual_seed(0)
    class_of = torch.randint(num_classes, (num_words,), generator=chance)
    class_of[:num_classes] = torch.randperm(num_classes, generator=chance)  # each class has words
    logits = 2 * torch.randn(num_classes, num_classes, dtype=torch.float64, generator=chance)
    frequencies = 1 / torch.arange(1, num_words + 1, dtype=torch.float64)
    totals = torch.zeros(num_classes, dtype=torch.float64).index_add(0, class_of, frequencies)
    return Language(class_of, logits.softmax(dim=1), frequencies / totals[class_of])


class WordModel(nn.Module):
    """An embedding, a residual perceptron between normalization layers, and an output layer."""

    outer_layers: ClassVar[tuple[str, ...]] = ("embedding", "output")
    """The first and last layers: those that optimizers for hidden matrices leave to another."""

    def __init__(self, num_words: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_words, width)
        self.norm = nn.LayerNorm(width)
        self.grow = nn.Linear(width, 4 * width)
        self.shrink = nn.Linear(4 * width, width)
        self.last_norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, num_words)
        nn.init.normal_(self.embedding.weight, std=0.02)
        nn.init.normal_(self.output.weight, std=0.02)

    def forward(self, words: Tensor) -> Tensor:
        """Return the logits of the next word."""
        stream = self.embedding(words)
        stream = stream + self.shrink(nn.functional.gelu(self.grow(self.norm(stream))))
        logits: Tensor = self.output(self.last_norm(stream))
        return logits


class ZipfWords(NextToken):
    """Prediction of the next word, given one word; every batch is new."""

    def __init__(self, setting: Setting) -> None:
        num_words = setting.option("num_words")
        self.language = language(num_words, setting.option("num_classes"))
        self.steps_per_epoch = setting.option("steps_per_epoch")
        self._valid = self.language.draw(
            setting.option("num_valid_pairs"), torch.Generator().manual_seed(1)
        )
        self._entropy = self.language.entropy(self._valid)
        super().__init__(setting, WordModel(num_words, setting.option("width")))

    def batches(self, epoch: int, start: int) -> Iterator[Windows]:
        """Yield new pairs of words."""
        setting = self.setting
        for index in range(start, self.steps_per_epoch):
            chance = generator(setting.seed, epoch, index)
            first, second = self.language.draw(setting.recipe.batch_size, chance)
            mine = slice(setting.rank, None, setting.world_size)
            yield first[mine], second[mine]

    def valid_windows(self) -> Iterator[Windows]:
        """Yield the same pairs at every evaluation."""
        first, second = self._valid
        for items in self.setting.in_order(len(first), self.setting.recipe.batch_size):
            yield first[items], second[items]

    def score(self) -> Sums:
        """Score the network by how far its loss is above the language's own entropy."""
        sums = super().score()
        total, count = sums["loss"]
        return {**sums, "excess": (total - self._entropy * count, count)}


def _recipe(
    takes: str, *, epochs: int, steps_per_epoch: int, num_words: int, **more: Any
) -> Recipe:
    return Recipe(
        epochs=epochs,
        batch_size=256,
        schedule=Cosine(warmup=0.1),
        options={
            "num_words": num_words,
            "num_classes": 64,
            "width": 64,
            "steps_per_epoch": steps_per_epoch,
            "num_valid_pairs": 2**14,
        },
        takes=takes,
        **more,
    )


ZIPF_WORDS = Task(
    name="zipf-words",
    title="next-word prediction with 4,096 words, most of them rare",
    metric=Metric("valid_excess", "validation loss above the entropy (nats per word)"),
    recipes={
        "paper": _recipe("not run", epochs=20, steps_per_epoch=500, num_words=2**15),
        "cpu": _recipe(
            "about 20 seconds on one core", epochs=6, steps_per_epoch=100, num_words=4096
        ),
        "mini": _recipe(
            "about 15 seconds on one core",
            epochs=4,
            steps_per_epoch=150,
            num_words=4096,
            num_step_records=12,
            shrunk="4,096 words instead of 32,768, and 600 steps instead of 10,000",
        ),
        "smoke": _recipe("seconds", epochs=2, steps_per_epoch=10, num_words=256),
    },
    build=ZipfWords,
    differences=(
        "This experiment is not in the paper. Its language is synthetic, so that the lowest possible loss "
        "is known, and rare words are as rare as in real text.",
        "The next word's class depends on the current word's class, and within a class words have Zipf "
        "frequencies. The score is the loss minus the entropy of the validation pairs.",
    ),
)
