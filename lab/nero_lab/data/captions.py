"""English captions of Multi30k, half of them with two words swapped."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nero_lab.data.multi30k import read_lines
from nero_lab.engine.batching import generator

_WORD = re.compile(r"[\w'-]+")
_SPLITS = {"train": 0, "val": 1, "test_2016_flickr": 2}


@dataclass(frozen=True)
class Captions:
    """Sentences, and for each whether two of its words were swapped."""

    texts: Sequence[str]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.texts)


def load(
    folder: Path, *, num_train: int | None = None, num_others: int | None = None
) -> tuple[Captions, Captions, Captions]:
    """Read captions for training, validation and the test, in lower case and without punctuation.

    Which are changed, and how, depends on their place alone: it is the same in every run.

    Args:
        folder: the folder with ``train.en``, ``val.en`` and ``test_2016_flickr.en``.
        num_train: use the first so many for training.
        num_others: use the first so many of each of the others.
    """
    numbers = (num_train, num_others, num_others)
    train, valid, test = (
        _read(folder / f"{name}.en", number, split)
        for (name, split), number in zip(_SPLITS.items(), numbers, strict=True)
    )
    return train, valid, test


def swapped(words: Sequence[str], numbers: torch.Generator) -> list[str]:
    """Swap two different words at random.

    Example:
        >>> from nero_lab.engine.batching import generator
        >>> sorted(swapped(["a", "dog", "runs"], generator(0)))
        ['a', 'dog', 'runs']
    """
    while True:
        first, second = torch.randperm(len(words), generator=numbers)[:2].tolist()
        if words[first] != words[second]:
            break
    changed = [*words]
    changed[first], changed[second] = words[second], words[first]
    return changed


def _read(path: Path, number: int | None, split: int) -> Captions:
    sentences = [_WORD.findall(line.lower()) for line in read_lines(path)]
    sentences = [words for words in sentences if len({*words}) > 1][:number]
    labels = torch.randint(2, (len(sentences),), generator=generator(split))
    texts = [
        " ".join(swapped(words, generator(split, place)) if label else words)
        for place, (words, label) in enumerate(zip(sentences, labels.tolist(), strict=True))
    ]
    return Captions(texts, labels)
