"""WikiText-2 as numbers: words split at white space, and one ``<eos>`` at the end of each line."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor


@dataclass(frozen=True)
class Words:
    """Texts as indices into one vocabulary."""

    train: Tensor
    valid: Tensor
    test: Tensor
    vocabulary: tuple[str, ...]


def load(folder: Path, *, num_tokens: int | None = None) -> Words:
    """Read the three texts; the vocabulary is what occurs in any of them: 33,278 words.

    Args:
        folder: the folder with ``train.txt``, ``valid.txt`` and ``test.txt``.
        num_tokens: read the first so many words for training, and a tenth of that of each other
            text; the vocabulary is then that of what was read.
    """
    tenth = None if num_tokens is None else num_tokens // 10
    train = _words(folder / "train.txt", num_tokens)
    valid = _words(folder / "valid.txt", tenth)
    test = _words(folder / "test.txt", tenth)
    vocabulary = tuple(dict.fromkeys(train + valid + test))
    index = {word: number for number, word in enumerate(vocabulary)}

    def numbers(words: Iterable[str]) -> Tensor:
        return torch.tensor([index[word] for word in words])

    return Words(numbers(train), numbers(valid), numbers(test), vocabulary)


def columns(text: Tensor, num_columns: int) -> Tensor:
    """Cut a text into equally long consecutive pieces, one per row; the remainder is dropped.

    Example:
        >>> columns(torch.arange(7), 2).tolist()
        [[0, 1, 2], [3, 4, 5]]
    """
    length = len(text) // num_columns
    return text[: length * num_columns].view(num_columns, length)


def num_windows(pieces: Tensor, length: int) -> int:
    """Return how many windows ``window`` finds; the last may be shorter."""
    return -(-(pieces.shape[1] - 1) // length)


def window(pieces: Tensor, length: int, index: int) -> tuple[Tensor, Tensor]:
    """Return the words of one window and, moved on by one, the words to predict.

    Example:
        >>> inputs, targets = window(torch.arange(12).view(2, 6), 3, 1)
        >>> inputs.tolist(), targets.tolist()
        ([[3, 4], [9, 10]], [[4, 5], [10, 11]])
    """
    cut = pieces[:, index * length : (index + 1) * length + 1]
    return cut[:, :-1], cut[:, 1:]


def _words(path: Path, limit: int | None) -> list[str]:
    with path.open(encoding="utf-8", newline="\n") as lines:
        words = (word for line in lines for word in (*line.split(), "<eos>"))
        return list(islice(words, limit))
