"""A translation transformer on Multi30k (Figure 8, where it is called WMT16)."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from nero_lab.data import multi30k
from nero_lab.data.files import folder
from nero_lab.engine.batching import num_batches
from nero_lab.engine.schedules import Triangle
from nero_lab.engine.sums import averages
from nero_lab.engine.task import PAPER_GRIDS, Experiment, Metric, Recipe, Setting, Sums, Take, Task
from nero_lab.experiments.perplexity import perplexities
from nero_lab.models.translation import Translator

Batch = tuple[Tensor, Tensor]


class Multi30k(Experiment):
    """Translation from German to English, word by word."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        text = multi30k.load(
            folder("multi30k", setting.data_dir), num_sentences=setting.option("num_sentences")
        )
        self.text, self.lengths = text, text.train.lengths()
        self.steps_per_epoch = num_batches(len(text.train), setting.recipe.batch_size)
        self.players = {
            "model": Translator(
                vocabulary=len(text.vocabulary),
                padding=multi30k.PAD,
                num_layers=setting.option("num_layers"),
                width=setting.option("width"),
                num_heads=setting.option("num_heads"),
                hidden=setting.option("hidden"),
                dropout=setting.option("dropout"),
                smoothing=setting.option("smoothing"),
                embedding_norm=setting.option("embedding_norm"),
                longest=int(
                    max(part.lengths().max() for part in (text.train, text.valid, text.test))
                ),
            )
        }

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """Yield shuffled sentences, those of like length together."""
        setting = self.setting
        order = multi30k.bucketed(
            self.lengths, setting.recipe.batch_size, seed=setting.seed, epoch=epoch
        )
        for items in islice(order, start, None):
            yield self._batch(self.text.train, items[setting.rank :: setting.world_size])

    def advance(self, batch: Batch, take: Take) -> Sums:
        """Train on one batch; the reported loss is that without label smoothing."""
        plain, smooth = self._losses(batch)
        # Ranks average their gradients; they have as many sentences, but not as many words.
        scale = float(self.setting.world_size)
        if not self.setting.option("summed_loss"):
            scale = 1 / averages({"words": (smooth.numel(), 1)}, self.setting)["words"]
        take("model", smooth.sum() * scale)
        return {"loss": (plain.detach().sum(), plain.numel())}

    def score(self) -> Sums:
        """Score the validation sentences."""
        return self._score(self.text.valid)

    def score_test(self) -> Sums:
        """Score the sentences of the test of 2016."""
        return self._score(self.text.test)

    def derive(self, averages: dict[str, float]) -> dict[str, float]:
        """Return the perplexity of each loss."""
        return perplexities(averages)

    def _score(self, pairs: multi30k.Pairs) -> Sums:
        setting, order = self.setting, pairs.lengths()[:, 1].argsort(stable=True)
        total, count = torch.zeros((), device=setting.device), 0
        for items in setting.in_order(len(pairs), setting.recipe.batch_size):
            plain, _ = self._losses(self._batch(pairs, order[items]))
            total += plain.sum()
            count += plain.numel()
        return {"loss": (total, count)}

    def _batch(self, pairs: multi30k.Pairs, items: Tensor) -> Batch:
        source, target = pairs.padded(items)
        return source.to(self.setting.device), target.to(self.setting.device)

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        source, target = batch
        plain, smooth = self.players["model"](source, target[:, :-1], target[:, 1:])
        return plain, smooth


_OPTIONS: dict[str, Any] = {
    "num_sentences": None,
    "num_layers": 6,
    "width": 512,
    "num_heads": 8,
    "hidden": 2048,
    "dropout": 0.1,
    "smoothing": 0.1,
    "embedding_norm": True,
    "summed_loss": True,
}
_SMALL = _OPTIONS | {"embedding_norm": False, "summed_loss": False}

MULTI30K = Task(
    name="multi30k",
    title="German-to-English translation on Multi30k with a transformer",
    figure="Figure 8",
    data="multi30k",
    metric=Metric("valid_perplexity", "validation perplexity", log=True),
    recipes={
        "paper": Recipe(
            epochs=100,
            batch_size=128,
            schedule=Triangle(),
            options=_OPTIONS,
            takes="about 1 hour on an RTX 2080Ti, according to the paper",
        ),
        "cpu": Recipe(
            epochs=12,
            batch_size=128,
            schedule=Triangle(),
            precision="bfloat16",
            options=_SMALL | {"num_layers": 2, "width": 256, "num_heads": 4, "hidden": 512},
            takes="20 to 50 minutes on one core with AMX",
        ),
        "mini": Recipe(
            epochs=4,
            batch_size=32,
            schedule=Triangle(),
            options=_SMALL
            | {
                **{"num_sentences": 3_200, "num_layers": 2, "width": 64, "num_heads": 2},
                "hidden": 128,
            },
            num_step_records=12,
            takes="20 to 60 seconds on one core",
            shrunk="3,200 of 29,000 sentences, 2 layers of width 64 instead of 6 of width 512, 400 steps",
        ),
        "smoke": Recipe(
            epochs=2,
            batch_size=16,
            schedule=Triangle(),
            options=_SMALL
            | {"num_sentences": 300, "num_layers": 1, "width": 32, "num_heads": 2, "hidden": 64},
            takes="seconds",
        ),
    },
    build=Multi30k,
    lrs={"nero": 0.001, "sgd": 0.0001, "adam": 0.0001, "lamb": 0.01},
    grids=PAPER_GRIDS,
    variants={"cosine": {"schedule": "Cosine(warmup=0.1)"}},
    paper_parameters=48_932_352,
    differences=(
        "The paper calls the data WMT16 English-German; the authors' stored runs are on Multi30k (the "
        "multimodal task of WMT16), from German to English.",
        "Sentences are split at white space and punctuation by the tokenizers library, not by spaCy, "
        "so the vocabulary is similar to the authors', but not the same.",
        "LayerNorm has no gains or biases, and the attention matrices have no biases. With one shared "
        "embedding, this gives the paper's 121 tensors.",
        "The paper does not say how embeddings, logits and losses are scaled. At paper scale, we follow "
        "its authors' code: embeddings are not multiplied by the square root of the width, a LayerNorm "
        "follows embeddings and positions, and the loss is summed over the words of a batch.",
        "The shortened recipe multiplies embeddings by the square root of the width, as in the original "
        "transformer paper, omits this LayerNorm, and averages the loss over words, so that SGD's "
        "published learning rate of 0.0001 corresponds to about 0.18.",
        "Batches contain sentences of similar length, to save padding.",
        "The shortened recipe has 2 + 2 layers of width 256, 12 epochs, and matrix products in "
        "bfloat16.",
    ),
)
