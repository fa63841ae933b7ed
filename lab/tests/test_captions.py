"""The fine-tuning task: its data, its small network, and that nothing changes before the first step."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from nero_lab.data.captions import load, swapped
from nero_lab.engine.batching import generator
from nero_lab.engine.errors import ConfigError
from nero_lab.engine.optimizers import find_optimizer
from nero_lab.models.sentence_encoder import SentenceClassifier, tiny_bert

WORDS = ["a", "dog", "runs", "over", "the", "red", "bridge"]


def classifier(parts: str = "all") -> tuple[SentenceClassifier, torch.Tensor]:
    torch.manual_seed(0)
    encoder, encode = tiny_bert([" ".join(WORDS)])
    model = SentenceClassifier(encoder, num_classes=2, parts=parts)
    return model, torch.stack(encode([" ".join(WORDS), " ".join(WORDS[::-1])]))


def test_two_words_change_places_and_no_more() -> None:
    for seed in range(20):
        changed = swapped(WORDS, generator(seed))
        assert sum(a != b for a, b in zip(WORDS, changed, strict=True)) == 2
        assert sorted(changed) == sorted(WORDS)


def test_equal_words_are_not_swapped() -> None:
    for seed in range(20):
        assert swapped(["a", "man", "a"], generator(seed)) != ["a", "man", "a"]


def test_captions_do_not_depend_on_how_many_are_read(tmp_path: Path) -> None:
    lines = [f"A man, number {place}, jumps over the {place % 3} dogs." for place in range(40)]
    for name in ("train", "val", "test_2016_flickr"):
        (tmp_path / f"{name}.en").write_text(
            "\n".join([*lines, "Same same.", ""]), encoding="utf-8"
        )
    train, valid, test = load(tmp_path, num_train=30)
    assert (len(train), len(valid), len(test)) == (30, 40, 40)  # without the one that cannot be
    assert all("," not in text and "." not in text for text in train.texts)
    assert 0 < train.labels.sum() < len(train)
    plain = [line.lower().replace(",", "").replace(".", "") for line in lines]
    for text, label, line in zip(train.texts, train.labels, plain, strict=False):
        assert (text != line) == bool(label)
    assert train.texts != valid.texts[:30]
    assert load(tmp_path, num_train=10)[1].texts == valid.texts


def test_only_what_is_asked_for_is_trained() -> None:
    model, tokens = classifier("head")
    trained = {name for name, param in model.named_parameters() if param.requires_grad}
    assert trained == {"head.weight", "head.bias"}
    model.train()
    assert torch.equal(model(tokens), model(tokens))  # features have no dropout
    model, tokens = classifier("all")
    model.train()
    assert not torch.equal(model(tokens), model(tokens))
    with pytest.raises(ConfigError, match="parts must be all, lora or head, not 'body'"):
        classifier("body")


def test_padding_changes_nothing() -> None:
    model, tokens = classifier()
    model.eval()
    padded = nn.functional.pad(tokens, (0, 3))
    torch.testing.assert_close(model(padded), model(tokens))


def test_an_encoder_keeps_its_bits_until_the_first_step() -> None:
    """Its head is new, and balanced: with it the outputs are those of the same head on both."""
    model, tokens = classifier()
    model.eval()
    before = copy.deepcopy(model)
    (optimizer,) = find_optimizer("nero-initial").build(model, 1e-3)
    rates = {group["lr"] for group in optimizer.param_groups}
    assert rates == {1e-3, 0.01}
    before.head.load_state_dict(model.head.state_dict())
    assert torch.equal(model(tokens), before(tokens))
    torch.testing.assert_close(model.head.weight.norm(dim=1), torch.ones(2))
