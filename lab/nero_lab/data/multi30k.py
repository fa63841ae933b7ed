"""Multi30k, German to English, in one vocabulary of lower-case words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from tokenizers.trainers import WordLevelTrainer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nero_lab.engine.batching import generator, num_batches

SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
PAD = SPECIALS.index("<pad>")


@dataclass(frozen=True)
class Pairs:
    """Sentences in two languages, each as numbers between ``<s>`` and ``</s>``."""

    source: Sequence[Tensor]
    target: Sequence[Tensor]

    def __len__(self) -> int:
        return len(self.source)

    def lengths(self) -> Tensor:
        """Return the lengths of source and target sentences, one pair a row."""
        return torch.tensor(
            [(len(a), len(b)) for a, b in zip(self.source, self.target, strict=True)]
        )

    def padded(self, items: Tensor) -> tuple[Tensor, Tensor]:
        """Return some pairs as two matrices, filled up with ``<pad>`` to the longest of each."""
        source = pad_sequence([self.source[item] for item in items.tolist()], True, PAD)
        target = pad_sequence([self.target[item] for item in items.tolist()], True, PAD)
        return source, target


@dataclass(frozen=True)
class Translation:
    """The data set and its vocabulary."""

    train: Pairs
    valid: Pairs
    test: Pairs
    vocabulary: tuple[str, ...]


def load(folder: Path, *, num_sentences: int | None = None, min_count: int = 3) -> Translation:
    """Read the sentences; both languages share the words that occur often enough in either.

    Args:
        folder: where ``train``, ``val`` and ``test_2016_flickr`` are, each with ``.de`` and ``.en``.
        num_sentences: use the first so many for training, and a tenth of that of the others.
        min_count: how often a word must occur in the training sentences of one language.
    """
    tenth = None if num_sentences is None else num_sentences // 10
    german, english = (
        read_lines(folder / f"train.{code}")[:num_sentences] for code in ("de", "en")
    )
    words = _frequent(german, min_count) | _frequent(english, min_count)
    vocabulary = (*SPECIALS, *sorted(words.difference(SPECIALS)))
    tokenizer = _tokenizer({word: number for number, word in enumerate(vocabulary)})

    def pairs(name: str) -> Pairs:
        both = (read_lines(folder / f"{name}.{code}")[:tenth] for code in ("de", "en"))
        return Pairs(*(_encode(tokenizer, lines) for lines in both))

    return Translation(
        train=Pairs(_encode(tokenizer, german), _encode(tokenizer, english)),
        valid=pairs("val"),
        test=pairs("test_2016_flickr"),
        vocabulary=vocabulary,
    )


def bucketed(
    lengths: Tensor, batch_size: int, *, seed: int, epoch: int, batches_per_bucket: int = 20
) -> Iterator[Tensor]:
    """Yield the items of each batch of an epoch, sentences of like length together.

    Sentences are shuffled and dealt into buckets; only within its bucket is a sentence sorted by
    length, and batches are shuffled again, so that little of the randomness is lost.
    """
    numbers = generator(seed, epoch)
    order = torch.randperm(len(lengths), generator=numbers)
    order = order[: num_batches(len(lengths), batch_size) * batch_size]
    batches: list[Tensor] = []
    for bucket in order.split(batch_size * batches_per_bucket):
        longer = lengths[bucket].amax(dim=1)  # of the two sentences of a pair
        batches.extend(bucket[longer.argsort(stable=True)].split(batch_size))
    for index in torch.randperm(len(batches), generator=numbers).tolist():
        yield batches[index]


def read_lines(path: Path) -> list[str]:
    """Return the sentences of a file, one per line."""
    return path.read_text(encoding="utf-8").strip().split("\n")


def _tokenizer(vocabulary: dict[str, int] | None = None) -> Tokenizer:
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # words, and runs of punctuation
    return tokenizer


def _frequent(lines: list[str], min_count: int) -> set[str]:
    tokenizer = _tokenizer()
    trainer = WordLevelTrainer(
        vocab_size=10**6, min_frequency=min_count, show_progress=False, special_tokens=[]
    )
    tokenizer.train_from_iterator(lines, trainer)
    return set(tokenizer.get_vocab())


def _encode(tokenizer: Tokenizer, lines: list[str]) -> list[Tensor]:
    begin, end = SPECIALS.index("<s>"), SPECIALS.index("</s>")
    return [torch.tensor([begin, *line.ids, end]) for line in tokenizer.encode_batch(lines)]
