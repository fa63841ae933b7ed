"""Embeddings that nothing reads but another embedding: factorizations, two towers, word vectors."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

import nero
from nero import Nero
from nero.core.neurons import LayoutWarning

USERS, ITEMS = torch.randint(0, 40, (20,)), torch.randint(0, 60, (20,))
BATCH = (USERS, ITEMS)

SCORES = {
    "mul and sum": lambda u, v: (u * v).sum(-1),
    "matmul": lambda u, v: u @ v.T,
    "bmm": lambda u, v: torch.bmm(u[:, None], v[:, :, None]),
    "einsum": lambda u, v: torch.einsum("bd,bd->b", u, v),
    "in place": lambda u, v: u.mul_(v).sum(dim=-1, keepdim=True),
}


class Factors(nn.Module):
    def __init__(self, score, width=16):
        super().__init__()
        self.score = score
        self.users, self.items = nn.Embedding(40, width), nn.Embedding(60, width)
        self.bias = nn.Embedding(60, 1)

    def forward(self, users, items):
        score = self.score(self.users(users), self.items(items))
        return score.sigmoid() + self.bias(items).mean()


def norms(table):
    return table.weight.norm(dim=-1)


@pytest.mark.parametrize("preset", ["rows", "polar"])
@pytest.mark.parametrize("score", SCORES.values(), ids=[*SCORES])
def test_an_example_shows_it(score, preset):
    model = Factors(score)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = Nero(model, preset=preset, example=BATCH)
        rows = nero.describe(model, preset=preset, example=BATCH).rows
    assert torch.allclose(norms(model.users), torch.ones(40))
    assert torch.allclose(norms(model.items), torch.ones(60))
    for row in rows[:2]:
        assert (row.role, row.constraint) == ("neuron", "mean 0, norm 1")
    assert {group["direction"] for group in optimizer.param_groups[:1]} == {"gradient"}


class WordVectors(nn.Module):
    """Continuous bag of words, with words that were not there as counterexamples."""

    def __init__(self):
        super().__init__()
        self.context, self.words = nn.Embedding(50, 16), nn.EmbeddingBag(50, 16)

    def forward(self, around, words):
        mean = self.context(around).mean(1)
        return (mean * self.words(words)).sum(-1)


def test_word_vectors_are_seen():
    model = WordVectors()
    around, words = torch.randint(0, 50, (5, 4)), torch.randint(0, 50, (5, 1))
    Nero(model, preset="rows", example=(around, words))
    assert torch.allclose(norms(model.context), torch.ones(50))
    assert torch.allclose(norms(model.words), torch.ones(50))


class Interactions(Factors):
    """Products of rows are features, as in recommenders."""

    def __init__(self):
        super().__init__(SCORES["matmul"])
        self.top = nn.Linear(20, 1)

    def forward(self, users, items):
        return self.top(self.score(self.users(users), self.items(items)))


def test_products_that_a_layer_reads_are_products():
    shown = nero.describe(Interactions(), preset="rows", example=BATCH).rows
    assert [row.role for row in shown[:2]] == ["neuron", "neuron"]
    assert shown[0].reason == "Embedding; multiplied with rows of a table; an output layer"


class Sampled(nn.Module):
    """Logits of a few classes, whose rows are looked up."""

    def __init__(self):
        super().__init__()
        self.tokens, self.body, self.classes = (
            nn.Embedding(40, 16),
            nn.Linear(16, 16),
            nn.Embedding(60, 16),
        )

    def forward(self, tokens, classes):
        return torch.einsum("bd,bd->b", self.body(self.tokens(tokens)), self.classes(classes))


def test_classes_that_are_looked_up_are_the_output():
    shown = {row.name: row for row in nero.describe(Sampled(), preset="rows", example=BATCH).rows}
    assert shown["tokens.weight"].constraint == "mean 0, norm 4"
    assert shown["classes.weight"].constraint == "mean 0, norm 1"


class Towers(Factors):
    """A layer reads each table before they meet."""

    def __init__(self):
        super().__init__(SCORES["mul and sum"])
        self.user_tower, self.item_tower = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, users, items):
        return self.score(self.user_tower(self.users(users)), self.item_tower(self.items(items)))


class Mixed(Factors):
    """Products number by number, which a layer reads, as in neural factorizations."""

    def __init__(self):
        super().__init__(torch.mul)
        self.top = nn.Linear(16, 1)

    def forward(self, users, items):
        return self.top(self.score(self.users(users), self.items(items)))


class Masked(Factors):
    """A number for each row is no vector; a sum over words is no score."""

    def __init__(self):
        super().__init__(torch.mul)
        self.top = nn.Linear(16, 1)

    def forward(self, users, items):
        kept = (users > 3).float()[:, None]
        users, items = self.users(users) * kept, self.items(items) * kept
        return self.top(users.sum(0) + items.sum(0)), items.sum(-1)


@pytest.mark.parametrize("cls", [Towers, Mixed, Masked])
def test_tables_that_layers_read_stay_large(cls):
    for row in nero.describe(cls(), preset="rows", example=BATCH).rows[:2]:
        assert (row.role, row.constraint) == ("embedding", "mean 0, norm 4")


def test_towers_end_in_two_outputs():
    rows = {row.name: row for row in nero.describe(Towers(), preset="polar", example=BATCH).rows}
    for name in ("user_tower.weight", "item_tower.weight"):
        assert rows[name].reason == "Linear; an output layer"


def test_the_norm_does_not_matter_to_cosines():
    scores = []
    for preset in ("paper", "rows"):
        torch.manual_seed(0)
        model = Factors(lambda u, v: (normalize(u) * normalize(v)).sum(-1))
        Nero(model, preset=preset, example=BATCH)
        scores.append(model(*BATCH))
    assert torch.allclose(*scores)


@pytest.mark.parametrize("preset", ["rows", "polar"])
@pytest.mark.parametrize(
    "params",
    [
        lambda model: model,
        lambda model: model.parameters(),
        lambda model: [*nero.annotate(model).named_parameters()],
    ],
    ids=["model", "iterator", "annotated"],
)
def test_without_an_example_the_user_is_told(params, preset):
    model = Factors(SCORES["mul and sum"])
    message = "^`users.weight` or `items.weight` .*may also be used as an output layer: no layer"
    with pytest.warns(LayoutWarning, match=message) as heard:
        Nero(params(model), preset=preset)
    assert len(heard) == 1


def test_nobody_is_told_of_one_table_or_where_it_was_seen():
    model = Factors(SCORES["bmm"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Nero(nn.Embedding(40, 16), preset="rows")
        Nero(nero.annotate(model, example=BATCH), preset="rows")
        Nero([*model.parameters()], preset="rows")
        Nero(model, preset="rows", constraint="balanced")
    assert torch.allclose(norms(model.users), torch.ones(40))
