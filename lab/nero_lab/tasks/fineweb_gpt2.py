"""GPT-2 on FineWeb, counted in steps: after the optimizer track of the NanoGPT speed-run."""

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

import torch

from nero_lab.data.token_shards import TokenShards, write_shard
from nero_lab.engine.batching import generator
from nero_lab.engine.schedules import Cosine
from nero_lab.engine.task import Experiment, Metric, Recipe, Setting, Task
from nero_lab.experiments.next_token import NextToken, Windows
from nero_lab.models.gpt import GPT


class FineWeb(NextToken):
    """Next-token prediction on shards, read once from the first token on, in the order of the files.

    The seed has no part in that order: it draws the initial weights only.

    Args:
        setting: with the recipe whose options say how large the network is.
        folder: where the shards are.

    Raises:
        DataError: if a shard is damaged, or there are fewer tokens than the run reads.
    """

    def __init__(self, setting: Setting, folder: Path) -> None:
        recipe, sizes = setting.recipe, dict(setting.recipe.options)
        context, vocabulary = sizes["context"], sizes["vocabulary"]
        self.steps_per_epoch = sizes["steps_per_epoch"]
        self.num_valid_windows = sizes["num_valid_tokens"] // context
        self.train, self.valid = (
            TokenShards(folder, f"fineweb_{split}_*.bin", context=context, vocabulary=vocabulary)
            for split in ("train", "val")
        )
        num_windows = recipe.epochs * self.steps_per_epoch * recipe.batch_size
        self.train.check_holds(num_windows, what=f"a run of {recipe.epochs} epochs")
        self.valid.check_holds(self.num_valid_windows, what="validation")
        model = GPT(
            vocabulary=vocabulary,
            context=context,
            num_layers=sizes["num_layers"],
            width=sizes["width"],
            num_heads=sizes["num_heads"],
        )
        super().__init__(setting, model)

    def batches(self, epoch: int, start: int) -> Iterator[Windows]:
        """Yield the windows that come next."""
        setting, size = self.setting, self.setting.recipe.batch_size
        for index in range(start, self.steps_per_epoch):
            first = (epoch * self.steps_per_epoch + index) * size
            items = torch.arange(first + setting.rank, first + size, setting.world_size)
            # Only `nero-lab time` runs past the end of the recipe, perhaps past the last token.
            yield self.train.windows(items % len(self.train))

    def valid_windows(self) -> Iterator[Windows]:
        """Yield the first windows of the validation shards, as many at once as in training."""
        size = max(self.setting.recipe.batch_size // self.setting.world_size, 1)
        for items in self.setting.in_order(self.num_valid_windows, size):
            yield self.valid.windows(items)


def build(setting: Setting) -> Experiment:
    """Return the network and the shards as the options of the recipe say."""
    if not setting.option("made_up"):
        return FineWeb(setting, setting.data_dir / "fineweb")
    folder = make_up_shards(setting.seed, vocabulary=setting.option("vocabulary"))
    experiment = FineWeb(setting, folder)
    weakref.finalize(experiment, shutil.rmtree, folder, ignore_errors=True)
    return experiment


def make_up_shards(seed: int, *, vocabulary: int) -> Path:
    """Write two shards for training and one for validation, and return their temporary folder.

    A token is drawn in inverse proportion to its number, so that there is something to learn.

    Args:
        seed: of the draws.
        vocabulary: number of different tokens.
    """
    folder, source = Path(tempfile.mkdtemp(prefix="nero-lab-")), generator(seed)
    frequencies = 1 / torch.arange(1, vocabulary + 1)
    names = {
        "fineweb_train_000001": 5_000,
        "fineweb_train_000002": 5_000,
        "fineweb_val_000000": 2_000,
    }
    for name, count in names.items():
        tokens = frequencies.multinomial(count, replacement=True, generator=source)
        write_shard(folder / f"{name}.bin", tokens)
    return folder


FINEWEB_GPT2 = Task(
    name="fineweb-gpt2",
    title="GPT-2 on FineWeb, in steps to a validation loss of 3.28",
    data="fineweb",
    metric=Metric("valid_loss", "validation loss (nats per token)", target=3.28),
    recipes={
        "paper": Recipe(
            epochs=80,
            batch_size=512,
            schedule=Cosine(warmup=1 / 40),
            precision="bfloat16",
            options={
                "vocabulary": 50_304,
                "num_valid_tokens": 20 * 2**19,
                "steps_per_epoch": 125,
                "context": 1024,
                "num_layers": 12,
                "width": 768,
                "num_heads": 12,
                "made_up": False,
            },
            takes="recipe only, not run; meant for eight GPUs of 80 GB",
        ),
        "cpu": Recipe(
            epochs=4,
            batch_size=4,
            schedule=Cosine(warmup=1 / 8),
            options={
                "vocabulary": 50_304,
                "num_valid_tokens": 2**12,
                "steps_per_epoch": 20,
                "context": 128,
                "num_layers": 2,
                "width": 64,
                "num_heads": 2,
                "made_up": False,
            },
            takes="recipe only, not run; a tiny network to test the shards before a large run",
        ),
        "smoke": Recipe(
            epochs=2,
            batch_size=8,
            schedule=Cosine(warmup=1 / 8),
            options={
                "vocabulary": 64,
                "num_valid_tokens": 1024,
                "steps_per_epoch": 15,
                "context": 32,
                "num_layers": 2,
                "width": 32,
                "num_heads": 2,
                "made_up": True,
            },
            takes="seconds",
        ),
    },
    build=build,
    differences=(
        "This experiment is not in the paper. It follows the optimizer track of the NanoGPT speedrun: "
        "524,288 FineWeb tokens per step, in the order of the shards, and a score that counts steps until "
        "the loss on the first 10,485,760 tokens of the validation shards reaches 3.28.",
        "The network differs from the track's, so step counts cannot be compared with its table. Ours has "
        "the shape of GPT-2 124M, with learned positions, LayerNorm and GELU, but no biases, and an untied "
        "head: 163M parameters in total. The track's has rotary positions, normalized queries and "
        "keys, squared ReLUs and biases.",
        "Download the token shards yourself and store them as "
        "<data-dir>/fineweb/fineweb_{train,val}_*.bin: 5.3 billion tokens for 10,000 steps.",
        "Gradients are not accumulated: each rank processes its part of the batch at once.",
        "At smoke scale, the tokens are random.",
    ),
)
