"""MNIST, read from the four gzipped IDX files that its publishers ship."""

import gzip
import struct
from pathlib import Path

import torch
from torch import Tensor

MEAN, STD = (0.1307,), (0.3081,)
"""Of the pixels of the training images, on a scale of 0 to 1."""

_PREFIX = {"train": "train", "valid": "t10k"}


def load(folder: Path, split: str) -> tuple[Tensor, Tensor]:
    """Return the bytes (images, 28, 28, 1) and the classes of the "train" or "valid" split."""
    prefix = _PREFIX[split]
    pixels = _read_idx(folder / f"{prefix}-images-idx3-ubyte.gz")
    labels = _read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz")
    return pixels.unsqueeze(-1), labels.long()


def _read_idx(path: Path) -> Tensor:
    content = gzip.decompress(path.read_bytes())
    # Two zero bytes, the type of the elements (8: bytes), the number of dimensions, then each size.
    kind, num_dims = content[2], content[3]
    if content[:2] != b"\0\0" or kind != 8:
        raise ValueError(f"{path} is not an IDX file of bytes; it begins with {content[:4]!r}")
    begin = 4 + 4 * num_dims
    shape = struct.unpack(f">{num_dims}I", content[4:begin])
    return torch.frombuffer(bytearray(content[begin:]), dtype=torch.uint8).view(shape)
