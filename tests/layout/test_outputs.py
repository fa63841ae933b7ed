"""Which layers are outputs: with an example those that no other layer follows."""

import pytest
import torch
from torch import nn

from nero.layout import infer_layouts

TOKENS = torch.randint(0, 50, (2, 7))
FEATURES = torch.randn(2, 8)


def outputs(model, example=None):
    return [each.name for each in infer_layouts(model, example) if each.is_output]


class Heads(nn.Module):
    """Registered in another order than data goes through them."""

    def __init__(self):
        super().__init__()
        self.classes, self.boxes = nn.Linear(8, 5), nn.Linear(8, 4)
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x):
        x = x + self.body(x)
        return self.classes(x), self.boxes(x).sigmoid()


def test_several_heads_are_seen_wherever_they_are_registered():
    assert outputs(Heads(), FEATURES) == ["classes.weight", "boxes.weight"]
    assert outputs(Heads()) == ["body.2.weight"]


class Gated(nn.Module):
    """Data goes through layers in ways that are no plain products, and into one head."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 8)
        self.route = nn.Linear(8, 3)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.pair = nn.Bilinear(8, 8, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 5)
        self.other = nn.Linear(8, 8)

    def forward(self, x):
        x = x * self.gate(x).sigmoid()
        weights = self.route(x).softmax(-1)
        x = sum(weights[:, i : i + 1] * expert(x) for i, expert in enumerate(self.experts))
        x = self.pair(self.other(x), x)[:, None]
        return self.head(self.attention(x, x, x)[0])


def test_a_layer_is_followed_through_whatever_data_takes():
    assert outputs(Gated(), FEATURES) == ["head.weight"]


@pytest.mark.parametrize("cls", [nn.RNN, nn.LSTM, nn.GRU])
def test_a_recurrent_layer_ends_where_its_last_step_does(cls):
    net = cls(8, 8, batch_first=True)
    steps = torch.randn(2, 3, 8)
    assert outputs(net, steps) == ["weight_hh_l0"]
    whole = nn.ModuleDict({"net": net, "head": nn.Linear(8, 3)})
    found = outputs(whole, lambda model: model["head"](model["net"](steps)[0]))
    assert found == ["head.weight"]


class MulAndSum(nn.Module):
    """A layer that is written as products and a sum, after another."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.weight = nn.Parameter(torch.randn(5, 8))

    def forward(self, x):
        return (self.first(x)[:, None] * self.weight).sum(-1)


def test_a_layer_of_products_and_a_sum_is_one():
    assert outputs(MulAndSum(), FEATURES) == ["weight"]


def test_a_bilinear_layer_is_one():
    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.pair, self.first = nn.Bilinear(8, 8, 4), nn.Linear(8, 8)

        def forward(self, x):
            x = self.first(x)
            return self.pair(x, x)

    assert outputs(Pairs(), FEATURES) == ["pair.weight"]


class Unused(Heads):
    def forward(self, x):
        return self.classes(x)


def test_a_layer_that_is_registered_last_and_not_reached_may_be_one():
    assert outputs(Unused(), FEATURES) == ["classes.weight", "body.2.weight"]


class Stops(Heads):
    def forward(self, x):
        classes = self.classes(x)
        return self.missing(classes)


def test_a_pass_that_stops_early_shows_no_end():
    with pytest.warns(UserWarning, match="stopped early"):
        assert outputs(Stops(), FEATURES) == ["body.2.weight"]


class Values(nn.Module):
    """Ends in a memory: its rows are compared with data, and then added up."""

    def __init__(self):
        super().__init__()
        self.first, self.memory = nn.Linear(8, 8), nn.Embedding(5, 8)

    def forward(self, x):
        return (self.first(x) @ self.memory.weight.T).softmax(-1) @ self.memory.weight


def test_a_table_whose_rows_are_added_up_is_no_output():
    memory = {each.name: each for each in infer_layouts(Values(), FEATURES)}["memory.weight"]
    assert (memory.layout.role, memory.is_output) == ("embedding", False)
