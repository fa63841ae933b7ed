"""Tokens in binary shards, the format in which FineWeb is shared for the NanoGPT speed-run.

A shard is a header of 256 int32 (a magic number, the version, the number of tokens, then nothing) and the
tokens as uint16, all little-endian.
"""

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nero_lab.engine.errors import DataError

MAGIC, VERSION = 20240520, 1

_HEADER = np.dtype("<i4"), 256
_TOKEN = np.dtype("<u2")
_HEADER_BYTES = _HEADER[0].itemsize * _HEADER[1]

Tokens = NDArray[np.uint16]


class TokenShards:
    """Shards as one sequence of windows of equal length, in the order of the files' names.

    Shards are memory-mapped, so a run reads what it trains on and nothing else. Windows lie side by side.
    The last token that one of them predicts is the first that the next one reads. None crosses from one
    shard into another: what is left at the end of a shard, less than a window, is not read.

    Args:
        folder: where the shards are.
        pattern: their names: ``"fineweb_train_*.bin"``.
        context: tokens that a window reads.
        vocabulary: tokens must be smaller than this number.

    Raises:
        DataError: if there is no shard, or one is damaged.
    """

    def __init__(self, folder: Path, pattern: str, *, context: int, vocabulary: int) -> None:
        self.pattern, self.context, self.vocabulary = folder / pattern, context, vocabulary
        self.paths = sorted(folder.glob(pattern))
        if not self.paths:
            raise DataError(
                f"there are no files {self.pattern}; put shards of FineWeb in GPT-2 tokens there"
            )
        self._shards = [read_shard(path) for path in self.paths]
        counts = (max(len(shard) - 1, 0) // context for shard in self._shards)
        self._ends = list(accumulate(counts))

    def __len__(self) -> int:
        """Return the number of windows."""
        return self._ends[-1]

    def check_holds(self, num_windows: int, *, what: str) -> None:
        """Refuse shards with fewer windows than ``what`` reads.

        Raises:
            DataError: with both numbers of tokens.
        """
        if len(self) < num_windows:
            has, wants = (f"{count * self.context:,}" for count in (len(self), num_windows))
            raise DataError(f"{self.pattern} holds {has} tokens, but {what} reads {wants}")

    def windows(self, items: Tensor) -> tuple[Tensor, Tensor]:
        """Return the windows of these numbers: what is read, and what comes next at each position.

        Raises:
            DataError: if a token is not of the vocabulary.
        """
        cut = torch.stack([self._window(item) for item in items.tolist()])
        return cut[:, :-1], cut[:, 1:]

    def _window(self, item: int) -> Tensor:
        number = bisect_right(self._ends, item)
        first = (item - (self._ends[number - 1] if number else 0)) * self.context
        tokens = self._shards[number][first : first + self.context + 1].astype(np.int64)
        if (largest := int(tokens.max())) >= self.vocabulary:
            raise DataError(
                f"{self.paths[number]} has the token {largest}; the vocabulary ends at "
                f"{self.vocabulary - 1}"
            )
        return torch.from_numpy(tokens)


def read_shard(path: Path) -> Tokens:
    """Return the tokens of a shard, memory-mapped.

    Raises:
        DataError: if it is not of this format, or its length is not that of its header.
    """
    size = path.stat().st_size
    if size < _HEADER_BYTES:
        raise DataError(f"{path} has {size} bytes, fewer than the header of a token shard")
    magic, version, num_tokens = (int(n) for n in np.fromfile(path, *_HEADER)[:3])
    if magic != MAGIC:
        raise DataError(f"{path} is not a token shard: it begins with {magic}, not {MAGIC}")
    if version != VERSION:
        raise DataError(f"{path} has format version {version}; we read version {VERSION}")
    expected = _HEADER_BYTES + _TOKEN.itemsize * num_tokens
    if num_tokens < 1 or size != expected:
        raise DataError(
            f"{path} has {size:,} bytes, but with the {num_tokens:,} tokens in its header it would have "
            f"{expected:,}. Download it again"
        )
    return np.memmap(path, dtype=_TOKEN, mode="r", offset=_HEADER_BYTES)


def write_shard(path: Path, tokens: Tensor) -> None:
    """Write a shard; tokens must be smaller than 65,536."""
    header = np.zeros(_HEADER[1], _HEADER[0])
    header[:3] = MAGIC, VERSION, len(tokens)
    path.write_bytes(header.tobytes() + tokens.numpy().astype(_TOKEN).tobytes())
