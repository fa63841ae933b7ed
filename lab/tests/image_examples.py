"""Images and settings that the tests of several classifiers need."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nero_lab.data import cifar10
from nero_lab.engine.task import Recipe, Setting
from nero_lab.experiments.classification import Augment, StoredImages


def setting(folder: Path, *, batch_size: int = 8, seed: int = 0, **changes: Any) -> Setting:
    return Setting(Recipe(epochs=1, batch_size=batch_size), seed, folder, **changes)


def noise(num_images: int = 40, *, augment: Augment | None = cifar10.crop_and_flip) -> StoredImages:
    pixels = torch.randint(256, (num_images, 32, 32, 3), dtype=torch.uint8)
    return StoredImages(
        pixels, torch.arange(num_images), cifar10.MEAN, cifar10.STD, augment, cifar10.num_draws(0.0)
    )


def mean_and_spread(pixels: Tensor) -> tuple[list[float], list[float]]:
    """Return those of each channel to four places, by counting how often each byte occurs."""
    values = torch.arange(256, dtype=torch.float64) / 255
    means, spreads = [], []
    for channel in pixels.unbind(-1):
        share = channel.flatten().bincount(minlength=256) / channel.numel()
        mean = (share * values).sum()
        means.append(round(mean.item(), 4))
        spreads.append(round((share * (values - mean) ** 2).sum().sqrt().item(), 4))
    return means, spreads
