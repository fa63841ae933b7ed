"""Figure 5: a class-conditional GAN on CIFAR-10, with the same learning rate for both players."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from nero_lab import fid
from nero_lab.batching import generator as seeded
from nero_lab.batching import in_order, num_batches, shuffled
from nero_lab.data import cifar10, files
from nero_lab.models.biggan import NUM_CLASSES, Discriminator, Generator
from nero_lab.schedules import Steps
from nero_lab.task import Experiment, Metric, Recipe, Setting, Sums, Take, Task

Batch = tuple[Tensor, Tensor]
"""Bytes (images, 3, 32, 32) and classes."""

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
        cache_dir = setting.data_dir / fid.CACHE
        self._judge = fid.judge(
            (self.images, self.classes),
            (valid[0].to(device), valid[1].to(device)),
            width=setting.option("classifier_width"),
            epochs=setting.option("classifier_epochs"),
            cache_dir=cache_dir,
        )
        mine = self.images[setting.rank :: setting.world_size]  # torchmetrics adds up the ranks
        self._distances = {"cifar_frechet": fid.frechet(self._judge.classifier, mine)}
        published = fid.inception(mine, cache_dir=cache_dir)
        if published is not None:
            self._distances["fid"] = published

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """Yield images and their classes, without augmentation."""
        for _, items in shuffled(
            len(self.images),
            self.setting.recipe.batch_size,
            seed=self.setting.seed,
            epoch=epoch,
            start=start,
            rank=self.setting.rank,
            world_size=self.setting.world_size,
        ):
            items = items.to(self.images.device)
            yield self.images[items], self.classes[items]

    def advance(self, batch: Batch, take: Take) -> Sums:
        """Let the discriminator step, then the generator."""
        reals, classes = batch
        num = len(reals)
        noise, wanted = self._draw(num)
        with torch.no_grad():
            fakes = _inner(self.players["generator"])(noise, wanted)
        # One pass over both halves: a second one would move spectral norm's vectors twice.
        images = torch.cat([_scaled(reals), fakes])
        scores = self.players["discriminator"](images, torch.cat([classes, wanted]))
        real_scores, fake_scores = scores.float().split(num)
        discriminator_loss = hinge(real_scores, fake_scores)
        take("discriminator", discriminator_loss)

        discriminator = _inner(self.players["discriminator"])
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

    def evaluate(self) -> Sums:
        """Measure how far samples are from the training images.

        Every rank returns the distance of all ranks' samples. A generator that yields numbers that
        are not finite has no distance.
        """
        generator = _inner(self.players["generator"])
        rank, world_size = self.setting.rank, self.setting.world_size
        is_finite = True
        with _evaluating(generator):
            for items in in_order(len(self._noise), 250, rank=rank, world_size=world_size):
                items = items.to(self._noise.device)
                images = generator(self._noise[items], self._wanted[items])
                is_finite &= bool(images.isfinite().all())
                for distance in self._distances.values():
                    fid.update(distance, _as_bytes(images), real=False)
        sums: Sums = {"classifier_accuracy": (self._judge.accuracy, 1)}
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
    """Return the discriminator's loss: real scores want to be above 1, fake ones below -1.

    Example:
        >>> hinge(torch.tensor([2.0, 0.0]), torch.tensor([-2.0, 0.0]))
        tensor(1.)
    """
    return (1 - real_scores).relu().mean() + (1 + fake_scores).relu().mean()


def samples(generator: Generator, *, num_per_class: int = 8, seed: int = _SCORING_SEED) -> Tensor:
    """Return bytes (3, height, width) of a grid of samples: a row for each class."""
    device = next(generator.parameters()).device
    num = NUM_CLASSES * num_per_class
    noise = torch.randn(num, generator.noise_size, generator=seeded(seed)).to(device)
    wanted = torch.arange(NUM_CLASSES, device=device).repeat_interleave(num_per_class)
    with _evaluating(generator):
        images = _as_bytes(generator(noise, wanted))
    grid: Tensor = images.unflatten(0, (NUM_CLASSES, num_per_class)).permute(2, 0, 3, 1, 4)
    return grid.flatten(3).flatten(1, 2)


def _scaled(pixels: Tensor) -> Tensor:
    return pixels.float() / 127.5 - 1


def _as_bytes(images: Tensor) -> Tensor:
    scaled = (images.nan_to_num() + 1) * 127.5
    return scaled.round().clamp(0, 255).to(torch.uint8)


def _inner(player: nn.Module) -> nn.Module:
    """Return a player without its wrapper, for passes that leave no gradients to average."""
    if isinstance(player, DistributedDataParallel):
        player = player.module
    return player


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


@contextlib.contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        module.train(was_training)


def build(setting: Setting) -> Experiment:
    """Return the GAN and CIFAR-10 as the options of the recipe say."""
    folder = files.folder("cifar10", setting.data_dir)
    num_images = setting.option("num_images")
    train, valid = (
        (pixels[:num_images].permute(0, 3, 1, 2), classes[:num_images])
        for pixels, classes in (cifar10.load(folder, split) for split in ("train", "valid"))
    )
    return ConditionalGAN(setting, train, valid)


_SCHEDULE = Steps(at=(100 / 120,), factor=0.1)
_OPTIONS: dict[str, Any] = {
    "generator_width": 256,
    "discriminator_width": 128,
    "num_images": None,
    "num_samples": 50_000,
    "classifier_width": 32,
    "classifier_epochs": 5,
}

CGAN = Task(
    name="cgan",
    title="class-conditional GAN (BigGAN-like) on CIFAR-10",
    figure="Figure 5",
    data="cifar10",
    metric=Metric("valid_cifar_frechet", "Fréchet distance (CIFAR classifier)"),
    recipes={
        "paper": Recipe(epochs=120, batch_size=64, schedule=_SCHEDULE, options=_OPTIONS),
        "cpu": Recipe(
            epochs=4,
            batch_size=64,
            schedule=_SCHEDULE,
            precision="bfloat16",
            options={
                **_OPTIONS,
                "generator_width": 64,
                "discriminator_width": 32,
                "num_samples": 10_000,
            },
            takes="20 to 25 minutes on one core by the time of a step; 5 more for a first classifier",
        ),
        "smoke": Recipe(
            epochs=2,
            batch_size=32,
            schedule=_SCHEDULE,
            precision="bfloat16",
            options={
                "generator_width": 8,
                "discriminator_width": 8,
                "num_images": 640,
                "num_samples": 500,
                "classifier_width": 4,
                "classifier_epochs": 8,
            },
        ),
    },
    build=build,
    lrs={"nero": 0.01, "sgd": 0.01, "adam": 0.0001, "lamb": 0.01},
    differences=(
        "The score is a Fréchet distance by the features of a small CIFAR-10 classifier that is "
        "trained here; the paper's FID, recorded as valid_fid where torch-fidelity is installed and "
        f"{fid.INCEPTION_WEIGHTS} lies in data/{fid.CACHE}, is on another scale.",
        "The paper gives neither widths, batch size, nor how many discriminator steps there are to "
        "one of the generator; ours are 256 and 128 channels, 64, and one.",
        "Spectral norm is in the discriminator only, and samples are drawn from the weights as they "
        "are; BigGAN has spectral norm in both and averages the generator's weights.",
        "Adam has beta1 = 0 in both players, as the paper says; the authors' code has 0.9 in the "
        "discriminator.",
    ),
)
