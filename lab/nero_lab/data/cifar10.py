"""CIFAR-10, read from the binary version that its publishers ship, and its usual augmentation."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
"""Of each channel of the training images, on a scale of 0 to 1."""

NUM_DRAWS = 3
"""Uniform numbers that ``crop_and_flip`` wants for each image."""

_FILES = {
    "train": [f"data_batch_{number}.bin" for number in range(1, 6)],
    "valid": ["test_batch.bin"],
}


def load(folder: Path, split: str) -> tuple[Tensor, Tensor]:
    """Return the bytes (images, 32, 32, 3) and the classes of the "train" or "valid" split."""
    content = b"".join((folder / name).read_bytes() for name in _FILES[split])
    # A record is the class, then all of red, all of green and all of blue.
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, 1 + 3 * 32 * 32)
    pixels = records[:, 1:].view(-1, 3, 32, 32).permute(0, 2, 3, 1).contiguous()
    return pixels, records[:, 0].long()


def crop_and_flip(pixels: Tensor, draws: Tensor, *, padding: int = 4) -> Tensor:
    """Return images that are shifted by up to ``padding`` pixels and mirrored half of the time.

    Args:
        pixels: bytes of shape (images, height, width, channels).
        draws: uniform numbers of shape (images, 3): two shifts, and whether to mirror.
        padding: black pixels added on every side before a crop of the old size.
    """
    num_images, height, width, _ = pixels.shape
    padded = F.pad(pixels, (0, 0, padding, padding, padding, padding))
    top, left = (draws[:, :2] * (2 * padding + 1)).long().unbind(1)
    rows = top[:, None] + torch.arange(height)
    columns = left[:, None] + torch.arange(width)
    columns = torch.where(draws[:, 2:] < 0.5, columns.flip(1), columns)
    images = torch.arange(num_images)
    return padded[images[:, None, None], rows[:, :, None], columns[:, None, :]]
