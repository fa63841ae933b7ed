"""The experiment of training two players against each other: a generator and a discriminator."""

import contextlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from nero_lab.engine.batching import generator as seeded
from nero_lab.engine.batching import num_batches
from nero_lab.engine.task import Experiment, Setting, Sums, Take, unwrapped
from nero_lab.experiments import fid, fid_classifier
from nero_lab.models.biggan import NUM_CLASSES, Discriminator, Generator

Batch = tuple[Tensor, Tensor]
"""Bytes (images, 3, 32, 32) and classes."""

CACHE = "nero-lab"
"""The folder, beside the data sets, of what we derive from them."""

_SCORING_SEED = 32  # of the noise that every run is scored with, whatever its own seed


class ConditionalGAN(Experiment):
    """A generator against a discriminator, with the hinge loss.

    A step is one update of the discriminator, then one of the generator, each on fresh noise.
    """

    def __init__(self, setting: Setting, train: Batch, valid: Batch) -> None:
        device = setting.device
        self.setting = setting
        self.images, self.classes = train[0].to(device), train[1].to(device)
        self.steps_per_epoch = num_batches(len(self.images), setting.recipe.batch_size)
        generator = Generator(setting.option("generator_width"))
        discriminator = Discriminator(setting.option("discriminator_width"))
        self.noise_size = generator.noise_size
        self.players = {"generator": generator, "discriminator": discriminator}
        for player in self.players.values():
            player.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]

        num_samples = setting.option("num_samples")
        noise = torch.randn(num_samples, self.noise_size, generator=seeded(_SCORING_SEED))
        self._noise = noise.to(device)
        self._wanted = torch.arange(num_samples, device=device) % NUM_CLASSES
        cache_dir = setting.data_dir / CACHE
        self._classifier = fid_classifier.load_or_train(
            (self.images, self.classes),
            (valid[0].to(device), valid[1].to(device)),
            width=setting.option("classifier_width"),
            epochs=setting.option("classifier_epochs"),
            cache_dir=cache_dir,
        )
        mine = self.images[setting.rank :: setting.world_size]  # torchmetrics adds up the ranks
        self._distances = {"cifar_frechet": fid.frechet(self._classifier.classifier, mine)}
        published = fid.inception(mine, cache_dir=cache_dir)
        if published is not None:
            self._distances["fid"] = published

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """Yield images and their classes, without augmentation."""
        for _, items in self.setting.shuffled(len(self.images), epoch, start):
            items = items.to(self.images.device)
            yield self.images[items], self.classes[items]

    def advance(self, batch: Batch, take: Take) -> Sums:
        """Let the discriminator step, then the generator."""
        reals, classes = batch
        num = len(reals)
        noise, wanted = self._draw(num)
        with torch.no_grad():
            fakes = unwrapped(self.players["generator"])(noise, wanted)
        # One pass over both halves: a second one would move spectral norm's vectors twice.
        images = torch.cat([_scaled(reals), fakes])
        scores = self.players["discriminator"](images, torch.cat([classes, wanted]))
        real_scores, fake_scores = scores.float().split(num)
        discriminator_loss = hinge(real_scores, fake_scores)
        take("discriminator", discriminator_loss)

        discriminator = unwrapped(self.players["discriminator"])
        noise, wanted = self._draw(num)
        with _frozen(discriminator):
            images = self.players["generator"](noise, wanted)
            generator_loss = -discriminator(images, wanted).float().mean()
            take("generator", generator_loss)
        return {
            "discriminator_loss": (discriminator_loss.detach() * num, num),
            "generator_loss": (generator_loss.detach() * num, num),
            "real_score": (real_scores.detach().sum(), num),
            "fake_score": (fake_scores.detach().sum(), num),
        }

    def score(self) -> Sums:
        """Measure how far samples are from the training images.

        Every rank returns the distance of all ranks' samples. A generator that yields numbers that
        are not finite has no distance.
        """
        is_finite = True
        for items in self.setting.in_order(len(self._noise), 250):
            items = items.to(self._noise.device)
            images = self.players["generator"](self._noise[items], self._wanted[items])
            is_finite &= bool(images.isfinite().all())
            for distance in self._distances.values():
                fid.update(distance, _as_bytes(images), real=False)
        sums: Sums = {"classifier_accuracy": (self._classifier.accuracy, 1)}
        for name, distance in self._distances.items():
            value = float(distance.compute())
            sums[name] = (value if is_finite else math.nan, 1)
            distance.reset()
        return sums

    def _draw(self, num: int) -> tuple[Tensor, Tensor]:
        device = self.setting.device
        noise = torch.randn(num, self.noise_size, device=device)
        return noise, torch.randint(NUM_CLASSES, (num,), device=device)


def hinge(real_scores: Tensor, fake_scores: Tensor) -> Tensor:
    """Return the discriminator's loss: it pushes real scores above 1 and fake ones below -1.

    Example:
        >>> hinge(torch.tensor([2.0, 0.0]), torch.tensor([-2.0, 0.0]))
        tensor(1.)
    """
    return (1 - real_scores).relu().mean() + (1 + fake_scores).relu().mean()


def _scaled(pixels: Tensor) -> Tensor:
    return pixels.float() / 127.5 - 1


def _as_bytes(images: Tensor) -> Tensor:
    scaled = (images.nan_to_num() + 1) * 127.5
    return scaled.round().clamp(0, 255).to(torch.uint8)


@contextlib.contextmanager
def _frozen(module: nn.Module) -> Iterator[None]:
    """Keep gradients from a module's own weights, but let them pass through it.

    Autocast, too, then copies the weights afresh, rather than take the copies that it made before a
    step in the same context.
    """
    module.requires_grad_(False)
    try:
        yield
    finally:
        module.requires_grad_(True)
