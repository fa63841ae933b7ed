"""The character GPT."""

import torch
from parameters import inner_matrices
from text_tasks import assert_no_word_sees_a_later_one

from nero_lab.models.gpt import GPT


def tiny_gpt() -> GPT:
    torch.manual_seed(0)
    return GPT(vocabulary=20, context=9, num_layers=2, width=16, num_heads=2)


def test_no_character_sees_a_later_one() -> None:
    assert_no_word_sees_a_later_one(tiny_gpt().eval())


def test_only_blocks_lie_between_the_outer_layers() -> None:
    matrices = inner_matrices(tiny_gpt())
    assert len(matrices) == 2 * 4
    assert all(name.startswith("blocks.") for name in matrices)
