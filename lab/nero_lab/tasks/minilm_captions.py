"""A pretrained sentence encoder that learns to tell captions from captions with two words swapped."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nero_lab.data import captions
from nero_lab.data.files import folder
from nero_lab.engine.batching import num_batches
from nero_lab.engine.schedules import Linear
from nero_lab.engine.task import Experiment, Metric, Recipe, Setting, Sums, Take, Task
from nero_lab.experiments.classification import cross_entropy, score_of
from nero_lab.models.sentence_encoder import PAD, SentenceClassifier, minilm, tiny_bert

Batch = tuple[Tensor, Tensor]


class MiniLMCaptions(Experiment):
    """Fine-tuning to say whether two words of a caption were swapped."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.train, self.valid, self.test = captions.load(
            folder("multi30k", setting.data_dir),
            num_train=setting.option("num_train"),
            num_others=setting.option("num_others"),
        )
        is_pretrained = setting.option("pretrained")
        encoder, self.encode = minilm() if is_pretrained else tiny_bert(self.train.texts)
        self.players = {
            "model": SentenceClassifier(encoder, num_classes=2, parts=setting.option("parts"))
        }
        self.steps_per_epoch = num_batches(len(self.train), setting.recipe.batch_size)

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """Yield shuffled captions."""
        for _, items in self.setting.shuffled(len(self.train), epoch, start):
            yield self._batch(self.train, items)

    def advance(self, batch: Batch, take: Take) -> Sums:
        """Take one step on the cross-entropy of a batch."""
        tokens, labels = batch
        loss, seen = cross_entropy(self.players["model"](tokens), labels)
        take("model", loss)
        return seen

    def score(self) -> Sums:
        """Score the captions for validation."""
        return self._score(self.valid)

    def score_test(self) -> Sums:
        """Score the captions of the test of 2016."""
        return self._score(self.test)

    def _score(self, data: captions.Captions) -> Sums:
        parts = self.setting.in_order(len(data), 64)
        return score_of(self.players["model"], (self._batch(data, items) for items in parts))

    def _batch(self, data: captions.Captions, items: Tensor) -> Batch:
        rows = self.encode([data.texts[item] for item in items.tolist()])
        tokens = pad_sequence(rows, batch_first=True, padding_value=PAD)
        return tokens.to(self.setting.device), data.labels[items].to(self.setting.device)


_OPTIONS: dict[str, Any] = {
    "num_train": 2400,
    "num_others": None,
    "pretrained": True,
    "parts": "all",
}

MINILM_CAPTIONS = Task(
    name="minilm-captions",
    title="pretrained MiniLM detecting captions with two swapped words",
    data="multi30k",
    metric=Metric("valid_accuracy", "validation accuracy", higher_is_better=True),
    recipes={
        "paper": Recipe(
            epochs=3,
            batch_size=32,
            schedule=Linear(),
            options=_OPTIONS | {"num_train": None},
            takes="not run",
        ),
        "cpu": Recipe(
            epochs=1,
            batch_size=16,
            schedule=Linear(),
            options=_OPTIONS,
            takes="2 to 4 minutes on one core",
        ),
        "smoke": Recipe(
            epochs=2,
            batch_size=8,
            schedule=Linear(),
            options=_OPTIONS | {"num_train": 48, "num_others": 16, "pretrained": False},
            takes="seconds",
        ),
    },
    build=MiniLMCaptions,
    variants={"lora": {"parts": "lora"}, "head": {"parts": "head"}},
    differences=(
        "This experiment is not in the paper, which trains networks from scratch.",
        "The weights are those of all-MiniLM-L6-v2, with 6 layers of width 384. A new head reads the mean "
        "of its outputs.",
        "Captions are lowercase and have no punctuation, because capitals and punctuation would give a "
        "swap away. Half of them, the same in every run, have two words swapped.",
        "nero-initial always trains the new head with the balanced constraint at a learning rate of 0.01.",
        "The variant lora trains rank-8 adapters on all linear layers. The variant head trains only a head "
        "on frozen features.",
    ),
)
