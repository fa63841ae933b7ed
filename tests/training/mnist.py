"""MNIST from its original idx files, for tests that train for real."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch

FOLDER = Path(os.environ.get("NERO_DATA", Path(__file__).parents[3] / "shared" / "data")) / "mnist"

requires_mnist = pytest.mark.skipif(
    not FOLDER.exists(),
    reason=f"no MNIST at {FOLDER}: set NERO_DATA to a folder that holds mnist/*-ubyte.gz",
)


def load(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images as normalized rows of 784, and labels; ``split`` is ``train`` or ``t10k``."""
    images = _read(f"{split}-images-idx3-ubyte.gz", offset=16).reshape(-1, 784)
    labels = _read(f"{split}-labels-idx1-ubyte.gz", offset=8)
    return (images.float() / 255 - 0.1307) / 0.3081, labels.long()


def _read(name: str, offset: int) -> torch.Tensor:
    raw = gzip.decompress((FOLDER / name).read_bytes())
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=offset).copy())
