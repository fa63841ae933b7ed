"""Tiny Shakespeare as one line of characters: the first nine tenths train, the rest validates."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor


@dataclass(frozen=True)
class Characters:
    """A text as indices into its alphabet."""

    train: Tensor
    valid: Tensor
    alphabet: str


def load(folder: Path, *, num_characters: int | None = None) -> Characters:
    """Read the text; its alphabet is that of the whole text even if only its beginning is used."""
    text = bytearray((folder / "input.txt").read_bytes())  # ASCII: a byte is a character
    alphabet, indices = torch.frombuffer(text, dtype=torch.uint8).unique(return_inverse=True)
    indices = indices[:num_characters]
    split = len(indices) * 9 // 10
    return Characters(
        train=indices[:split],
        valid=indices[split:],
        alphabet=bytes(alphabet.tolist()).decode("ascii"),
    )


def windows(text: Tensor, starts: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Cut windows out of a text: what is read, and the same moved on by one, which is predicted.

    Example:
        >>> inputs, targets = windows(torch.arange(9), torch.tensor([0, 5]), 3)
        >>> inputs.tolist(), targets.tolist()
        ([[0, 1, 2], [5, 6, 7]], [[1, 2, 3], [6, 7, 8]])
    """
    cut = text[starts[:, None] + torch.arange(context + 1)]
    return cut[:, :-1], cut[:, 1:]
