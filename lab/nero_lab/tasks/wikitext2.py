"""A small transformer language model on WikiText-2 (Figure 7)."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from nero_lab.data import wikitext2
from nero_lab.data.files import folder
from nero_lab.engine.schedules import Steps
from nero_lab.engine.task import PAPER_GRIDS, Experiment, Metric, Recipe, Setting, Sums, Take, Task
from nero_lab.experiments.perplexity import perplexities
from nero_lab.models.language_model import LanguageModel

Window = tuple[Tensor, Tensor]


class WikiText2(Experiment):
    """Next-word prediction; the text is cut into as many pieces as a batch has rows."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.longest: int = setting.option("window")
        text = wikitext2.load(
            folder("wikitext2", setting.data_dir), num_tokens=setting.option("num_tokens")
        )
        share = slice(setting.rank, None, setting.world_size)
        train = wikitext2.columns(text.train, setting.recipe.batch_size)
        self.train = train[share]
        self.valid, self.held_out = (
            wikitext2.columns(part, setting.recipe.batch_size)[share]
            for part in (text.valid, text.test)
        )
        self.steps_per_epoch = wikitext2.num_windows(train, self.longest)
        self.players = {
            "model": LanguageModel(
                vocabulary=len(text.vocabulary),
                num_layers=setting.option("num_layers"),
                width=setting.option("width"),
                num_heads=setting.option("num_heads"),
                hidden=setting.option("hidden"),
                dropout=setting.option("dropout"),
                longest=self.longest,
            )
        }

    def batches(self, epoch: int, start: int) -> Iterator[Window]:
        """Yield the windows in the order of the text, the same in every epoch."""
        for index in range(start, self.steps_per_epoch):
            yield self._window(self.train, index)

    def advance(self, batch: Window, take: Take) -> Sums:
        """Train on one window."""
        losses = self.players["model"](*batch)
        take("model", losses.mean())
        return {"loss": (losses.detach().sum(), losses.numel())}

    def score(self) -> Sums:
        """Score the validation text."""
        return self._score(self.valid)

    def score_test(self) -> Sums:
        """Score the test text."""
        return self._score(self.held_out)

    def derive(self, averages: dict[str, float]) -> dict[str, float]:
        """Return the perplexity of each loss."""
        return perplexities(averages)

    def _score(self, pieces: Tensor) -> Sums:
        total, count = torch.zeros((), device=self.setting.device), 0
        for index in range(wikitext2.num_windows(pieces, self.longest)):
            losses = self.players["model"](*self._window(pieces, index))
            total += losses.sum()
            count += losses.numel()
        return {"loss": (total, count)}

    def _window(self, pieces: Tensor, index: int) -> Window:
        inputs, targets = wikitext2.window(pieces, self.longest, index)
        return inputs.to(self.setting.device), targets.to(self.setting.device)


_OPTIONS: dict[str, Any] = {
    "num_tokens": None,
    "window": 35,
    "num_layers": 2,
    "width": 200,
    "num_heads": 2,
    "hidden": 200,
    "dropout": 0.2,
}
_SCHEDULE = Steps(at=(0.5,), factor=0.1)

WIKITEXT2 = Task(
    name="wikitext2",
    title="a small transformer language model on WikiText-2",
    figure="Figure 7",
    data="wikitext2",
    metric=Metric("valid_perplexity", "validation perplexity", log=True),
    recipes={
        "paper": Recipe(
            epochs=20,
            batch_size=20,
            schedule=_SCHEDULE,
            clip_norm={"sgd": 0.25},
            options=_OPTIONS,
            takes="about 15 minutes on an RTX 2080Ti, according to the paper",
        ),
        "cpu": Recipe(
            epochs=4,
            batch_size=20,
            schedule=_SCHEDULE,
            clip_norm=0.25,
            precision="bfloat16",
            options=_OPTIONS,
            takes="50 to 110 minutes on one core with AMX",
        ),
        "mini": Recipe(
            epochs=2,
            batch_size=10,
            schedule=_SCHEDULE,
            clip_norm={"sgd": 0.25},
            options=_OPTIONS | {"num_tokens": 50_000, "width": 100, "hidden": 100},
            num_step_records=12,
            takes="20 to 60 seconds on one core",
            shrunk="the first 50,000 of 2.1 million words, half the width, and 2 epochs instead of 20",
        ),
        "smoke": Recipe(
            epochs=2,
            batch_size=4,
            schedule=_SCHEDULE,
            clip_norm=0.25,
            options=_OPTIONS | {"num_tokens": 4000, "width": 32, "hidden": 32},
            takes="seconds",
        ),
    },
    build=WikiText2,
    lrs={"nero": 0.01, "sgd": 1.0, "adam": 0.0001, "lamb": 0.01},
    grids=PAPER_GRIDS,
    variants={"cosine": {"schedule": "Cosine(warmup=0.1)"}},
    differences=(
        "The paper does not describe the model. Sizes and dropout are those of the authors' code, with no "
        "LayerNorm, and with untied embedding and decoder.",
        "At paper scale, the gradient norm is clipped at 0.25 for SGD only, as in the authors' code. "
        "The shortened recipe clips it for every optimizer, which helps Nero: in a smaller run (100,000 "
        "tokens, 4 epochs, one seed), its perplexity is 731.8 with clipping and 817.4 without.",
        "The shortened recipe has 4 epochs, and matrix products in bfloat16.",
    ),
)
