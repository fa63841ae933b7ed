"""Images in class folders, as ImageNet comes: ``<root>/<class>/<image>``.

A crop depends on the seed, the epoch and the image alone, so it does not matter which worker or rank
reads it, nor where a run was resumed.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from nero_lab.data.pixels import normalized
from nero_lab.engine.batching import generator
from nero_lab.engine.errors import DataError
from nero_lab.engine.task import Setting

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of each channel of the images of ImageNet, on a scale of 0 to 1."""

_SUFFIXES = {".jpeg", ".jpg", ".png"}


@dataclass(frozen=True)
class ImageFolder:
    """A split of a data set of images, one folder for each class.

    Args:
        root: the folder of class folders; classes are numbered by the order of their names.
        size: pixels of a side of the crops.
        num_classes: take only the first so many classes; None takes all.
        num_workers: processes that read ahead; with 0 the images are read as they are wanted.
    """

    root: Path
    size: int
    num_classes: int | None = None
    num_workers: int = 0

    @cached_property
    def classes(self) -> list[str]:
        """The names of the classes."""
        if not self.root.is_dir():
            raise DataError(f"there is no folder {self.root}; {self._wanted}")
        names = sorted(path.name for path in self.root.iterdir() if path.is_dir())
        if self.num_classes is not None and len(names) < self.num_classes:
            raise DataError(
                f"{self.root} has {len(names)} classes, not {self.num_classes}; {self._wanted}"
            )
        return names[: self.num_classes]

    @cached_property
    def examples(self) -> list[tuple[Path, int]]:
        """The path and the class of each image, in the order of their names."""
        found = [
            (path, label)
            for label, name in enumerate(self.classes)
            for path in sorted((self.root / name).iterdir())
            if path.suffix.lower() in _SUFFIXES
        ]
        if not found:
            raise DataError(f"there are no images in {self.root}; {self._wanted}")
        return found

    @property
    def _wanted(self) -> str:
        splits = f"{self.root.parent}{os.sep}{{train,val}}"
        return f"images are expected at {os.path.join(splits, '<class>', '*.JPEG')}"

    def __len__(self) -> int:
        return len(self.examples)

    def shuffled(self, setting: Setting, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield this rank's part of each training batch of an epoch, from batch ``start`` on."""
        batches = [items.tolist() for _, items in setting.shuffled(len(self), epoch, start)]
        return self._read(batches, _Crops(self.examples, self.size, (setting.seed, epoch)), setting)

    def in_order(self, setting: Setting) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield this rank's share of all images once, cropped at the centre."""
        size = max(setting.recipe.batch_size // setting.world_size, 1)
        batches = [items.tolist() for items in setting.in_order(len(self), size)]
        return self._read(batches, _Crops(self.examples, self.size, None), setting)

    def _read(
        self, batches: list[list[int]], crops: "_Crops", setting: Setting
    ) -> Iterator[tuple[Tensor, Tensor]]:
        loader = DataLoader(
            crops,
            batch_sampler=batches,
            num_workers=self.num_workers,
            pin_memory=setting.device.type == "cuda",
            # Otherwise the loader would draw a seed for its workers from the global generator.
            generator=torch.Generator(),
        )
        for pixels, labels in loader:
            pixels = pixels.to(setting.device, non_blocking=True)
            yield normalized(pixels, MEAN, STD), labels.to(setting.device)


class _Crops(Dataset[tuple[Tensor, int]]):
    """Byte images (size, size, 3), cropped at random if there is a key to draw by."""

    def __init__(
        self, examples: list[tuple[Path, int]], size: int, key: tuple[int, int] | None
    ) -> None:
        self._examples, self._size, self._key = examples, size, key

    def __getitem__(self, item: int) -> tuple[Tensor, int]:
        path, label = self._examples[item]
        with Image.open(path) as file:
            image = file.convert("RGB")
        if self._key is None:
            image = centre_crop(image, self._size)
        else:
            image = random_crop(image, self._size, generator(*self._key, item))
        return torch.from_numpy(np.array(image)), label


def random_crop(image: Image.Image, size: int, source: torch.Generator) -> Image.Image:
    """Return a part of 8 to 100% of the area, resized to a square and mirrored half of the time.

    The ratio of its sides is between 3:4 and 4:3. A part that would stick out is drawn again, up to
    ten times; then the largest part at the centre with an allowed ratio is taken.
    """
    box = _random_box(*image.size, torch.rand(10, 4, generator=source))
    crop = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    mirror = bool(torch.rand((), generator=source) < 0.5)
    return crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirror else crop


def centre_crop(image: Image.Image, size: int) -> Image.Image:
    """Return the centre: 7/8 of the shorter side (224 of 256 pixels), resized to a square."""
    width, height = image.size
    side = min(width, height) * 7 / 8
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.BILINEAR, box=box)


def _random_box(width: int, height: int, draws: Tensor) -> tuple[int, int, int, int]:
    for area, ratio, x, y in draws.tolist():
        num_pixels = (0.08 + 0.92 * area) * width * height
        sides = (4 / 3) ** (2 * ratio - 1)
        w, h = round(math.sqrt(num_pixels * sides)), round(math.sqrt(num_pixels / sides))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(x * (width - w + 1)), int(y * (height - h + 1))
            return left, top, left + w, top + h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h
