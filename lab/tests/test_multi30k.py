"""The translation transformer and Multi30k."""

from typing import Any, cast

import torch
from parameters import inner_matrices
from text_tasks import assert_no_word_sees_a_later_one
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from nero_lab.data import multi30k
from nero_lab.models.translation import Translator


def tiny_translator(**options: Any) -> Translator:
    torch.manual_seed(0)
    sizes = {"num_layers": 2, "width": 16, "num_heads": 2, "hidden": 24, "longest": 12}
    return Translator(vocabulary=30, padding=0, **(sizes | options))


def test_the_translator_has_121_tensors() -> None:
    with torch.device("meta"):
        model = Translator(vocabulary=9_521, padding=0)
    assert len(list(model.parameters())) == 121


def test_no_word_sees_a_later_one() -> None:
    model = tiny_translator().eval()
    source = torch.randint(1, 20, (2, 5))
    assert_no_word_sees_a_later_one(lambda target: cast(Tensor, model(source, target)))


def test_all_but_the_embedding_lies_between_the_outer_layers() -> None:
    matrices = inner_matrices(tiny_translator())
    assert len(matrices) == 2 * (4 + 2) + 2 * (8 + 2)
    assert all(name.startswith(("encoder.", "decoder.")) for name in matrices)


def test_padding_leaves_the_losses_of_words_alone() -> None:
    model = tiny_translator().eval()
    source, target = torch.randint(1, 30, (3, 6)), torch.randint(1, 30, (3, 7))
    pad = nn.functional.pad
    plain = model(source, target[:, :-1], target[:, 1:])
    longer_source, longer = pad(source, (0, 4)), pad(target, (0, 3))
    padded = model(longer_source, longer[:, :-1], longer[:, 1:])
    for expected, found in zip(plain, padded, strict=True):
        assert len(found) == 3 * 6
        torch.testing.assert_close(found, expected)


def test_smoothed_losses_are_those_of_torch() -> None:
    model = tiny_translator(smoothing=0.3).eval()
    source, target = torch.randint(1, 30, (3, 6)), torch.randint(1, 30, (3, 7))
    logits = cast(Tensor, model(source, target[:, :-1])).flatten(0, 1)
    words = target[:, 1:].flatten()
    plain, smooth = model(source, target[:, :-1], target[:, 1:])
    torch.testing.assert_close(plain, cross_entropy(logits, words, reduction="none"))
    expected = cross_entropy(logits, words, reduction="none", label_smoothing=0.3)
    torch.testing.assert_close(smooth, expected)


def test_every_sentence_comes_at_most_once_an_epoch() -> None:
    lengths = torch.randint(3, 30, (1000, 2), generator=torch.Generator().manual_seed(0))
    batches = list(multi30k.bucketed(lengths, 16, seed=0, epoch=0))
    assert len(batches) == 62
    assert torch.cat(batches).unique().numel() == 62 * 16


def test_the_authors_embedding_is_normalized_and_not_scaled() -> None:
    tokens = torch.arange(1, 7).view(2, 3)
    model = tiny_translator(embedding_norm=True, dropout=0.0)
    stream = model._embed(tokens)
    torch.testing.assert_close(stream.mean(-1), torch.zeros(2, 3), rtol=0, atol=1e-5)
    plain = model.embedding(tokens) + cast(Tensor, model.positions)[:3]
    torch.testing.assert_close(stream, nn.functional.layer_norm(plain, plain.shape[-1:]))
