"""CIFAR-10, read from the binary version that its publishers ship, and its usual augmentation."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
"""Of each channel of the training images, on a scale of 0 to 1."""

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


def augmented(pixels: Tensor, draws: Tensor, *, rotation: float = 0.0) -> Tensor:
    """Return images that are shifted, mirrored and, if asked for, rotated at random.

    Args:
        pixels: bytes of shape (images, height, width, channels).
        draws: uniform numbers of shape (images, ``num_draws(rotation)``).
        rotation: largest angle, in degrees, either way.
    """
    shifted = crop_and_flip(pixels, draws[:, :3])
    return rotated(shifted, rotation * (2 * draws[:, 3] - 1)) if rotation else shifted


def num_draws(rotation: float) -> int:
    """Return how many uniform numbers ``augmented`` wants for each image."""
    return 4 if rotation else 3


def rotated(pixels: Tensor, degrees: Tensor) -> Tensor:
    """Return images that are turned about their centres; corners that come from outside are black.

    Args:
        pixels: bytes of shape (images, height, width, channels).
        degrees: an angle for each image.
    """
    cos, sin = degrees.deg2rad().cos(), degrees.deg2rad().sin()
    zero = torch.zeros_like(cos)
    turn = torch.stack((cos, -sin, zero, sin, cos, zero), dim=1).view(-1, 2, 3)
    images = pixels.permute(0, 3, 1, 2).float()
    grid = F.affine_grid(turn, list(images.shape), align_corners=False)
    turned = F.grid_sample(images, grid, mode="nearest", align_corners=False)
    return turned.to(torch.uint8).permute(0, 2, 3, 1)


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
