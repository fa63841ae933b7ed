"""What all classifiers share, cross-entropy and accuracy, and the experiment of those of images."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nero_lab.data.pixels import normalized
from nero_lab.engine.batching import generator, num_batches
from nero_lab.engine.task import Experiment, Setting, Sums, Take

Batch = tuple[Tensor, Tensor]
"""Images (batch, channels, height, width) in float32 and their classes."""

Augment = Callable[[Tensor, Tensor], Tensor]
"""A function of byte images (batch, height, width, channels) and of as many rows of uniform numbers."""


class Examples(Protocol):
    """Labelled images, wherever they are kept."""

    def __len__(self) -> int:
        """Return the number of images."""

    def shuffled(self, setting: Setting, epoch: int, start: int) -> Iterator[Batch]:
        """Yield this rank's part of each training batch of an epoch, from batch ``start`` on."""

    def in_order(self, setting: Setting) -> Iterator[Batch]:
        """Yield this rank's share of all images once, without augmentation."""


@dataclass(frozen=True)
class StoredImages:
    """Labelled images in memory, kept as bytes and normalized as they are read.

    Args:
        pixels: bytes of shape (images, height, width, channels). A batch in this order is already
            in the layout that convolutions are fastest in (``torch.channels_last``).
        labels: the class of each image.
        mean: what to take away from each channel, on a scale of 0 to 1.
        std: what to divide each channel by afterwards.
        augment: what to do to training images.
        num_draws: uniform numbers that ``augment`` wants for each image.
    """

    pixels: Tensor
    labels: Tensor
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: Augment | None = None
    num_draws: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, num_images: int | None) -> "StoredImages":
        """Return the first images alone, or all of them if ``num_images`` is None."""
        return replace(self, pixels=self.pixels[:num_images], labels=self.labels[:num_images])

    def shuffled(self, setting: Setting, epoch: int, start: int) -> Iterator[Batch]:
        """Yield this rank's part of each training batch of an epoch, from batch ``start`` on."""
        for index, items in setting.shuffled(len(self), epoch, start):
            pixels = self.pixels[items]
            if self.augment is not None:
                # Drawn for the whole batch, so that augmentation does not depend on the number of ranks.
                source = generator(setting.seed, epoch, index)
                draws = torch.rand(setting.recipe.batch_size, self.num_draws, generator=source)
                pixels = self.augment(pixels, draws[setting.rank :: setting.world_size])
            yield self._batch(pixels, items, setting.device)

    def in_order(self, setting: Setting) -> Iterator[Batch]:
        """Yield this rank's share of all images once, without augmentation."""
        for items in setting.in_order(len(self), setting.recipe.batch_size):
            yield self._batch(self.pixels[items], items, setting.device)

    def _batch(self, pixels: Tensor, items: Tensor, device: torch.device) -> Batch:
        images = normalized(pixels.to(device), self.mean, self.std)
        return images, self.labels[items].to(device)


class Classification(Experiment):
    """Train one network, the player ``"model"``, to name the class of an image."""

    def __init__(
        self, setting: Setting, model: nn.Module, *, train: Examples, valid: Examples
    ) -> None:
        # The layout of the images, and the fastest one; torch's stubs do not know the argument.
        model = model.to(setting.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.players = {"model": model}
        self.steps_per_epoch = num_batches(len(train), setting.recipe.batch_size)
        self._setting, self._train, self._valid = setting, train, valid

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """Yield this rank's part of each batch of an epoch, from batch ``start`` on."""
        return self._train.shuffled(self._setting, epoch, start)

    def advance(self, batch: Any, take: Take) -> Sums:
        """Take one step on the cross-entropy of a batch."""
        images, labels = batch
        loss, seen = cross_entropy(self.players["model"](images), labels)
        take("model", loss)
        return seen

    def score(self) -> Sums:
        """Score the network on the validation images."""
        return score_of(self.players["model"], self._valid.in_order(self._setting))

    def derive(self, averages: dict[str, float]) -> dict[str, float]:
        """Return the top-1 error in percent, beside each accuracy."""
        suffix = "_accuracy"
        return {
            name.removesuffix(suffix) + "_error": 100 * (1 - value)
            for name, value in averages.items()
            if name.endswith(suffix)
        }


def score_of(model: nn.Module, batches: Iterable[Batch]) -> Sums:
    """Add up the cross-entropy and the right answers of a model over batches of inputs and labels."""
    loss, correct, count = 0.0, 0.0, 0
    for inputs, labels in batches:
        _, seen = cross_entropy(model(inputs), labels)
        loss += float(seen["loss"][0])
        correct += float(seen["accuracy"][0])
        count += len(labels)
    return {"loss": (loss, count), "accuracy": (correct, count)}


def cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Sums]:
    """Return the loss of a batch, and what is seen of it: the sums of losses and of right answers."""
    loss = F.cross_entropy(logits.float(), labels)  # in float32 under autocast too
    count = len(labels)
    correct = (logits.detach().argmax(1) == labels).sum()
    return loss, {"loss": (loss.detach() * count, count), "accuracy": (correct, count)}
