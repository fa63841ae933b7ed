"""The made-up language has the frequencies and the entropy that it claims."""

import torch

from nero_lab.tasks.zipf_words import language

LANGUAGE = language(200, 8)


def test_probabilities_add_up_to_one() -> None:
    of_words = torch.zeros(8, dtype=torch.float64).index_add(0, LANGUAGE.class_of, LANGUAGE.words)
    torch.testing.assert_close(of_words, torch.ones(8, dtype=torch.float64))
    torch.testing.assert_close(LANGUAGE.next_class.sum(dim=1), torch.ones(8, dtype=torch.float64))


def test_first_words_have_zipfs_frequencies() -> None:
    first, _ = LANGUAGE.draw(100_000, torch.Generator().manual_seed(0))
    counts = first.flatten().bincount(minlength=200).double()
    expected = 1 / torch.arange(1, 201, dtype=torch.float64)
    expected *= 100_000 / expected.sum()
    # Seven standard deviations, of 200 counts.
    assert ((counts - expected).abs() < 7 * expected.sqrt()).all()


def test_no_guess_is_better_than_the_entropy() -> None:
    """Pair frequencies, counted in a large sample, predict another sample nearly as well as the truth."""
    train = LANGUAGE.draw(400_000, torch.Generator().manual_seed(0))
    valid = LANGUAGE.draw(50_000, torch.Generator().manual_seed(1))
    classes = LANGUAGE.class_of[train[0].flatten()]
    counts = torch.full((8, 200), 0.1, dtype=torch.float64)
    ones = torch.ones(len(classes), dtype=torch.float64)
    counts.index_put_((classes, train[1].flatten()), ones, accumulate=True)
    chances = (counts / counts.sum(dim=1, keepdim=True)).log()
    loss = -chances[LANGUAGE.class_of[valid[0].flatten()], valid[1].flatten()].mean()
    entropy = LANGUAGE.entropy(valid)
    assert entropy < loss < entropy + 0.01
