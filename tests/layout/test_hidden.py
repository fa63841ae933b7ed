"""Which weights go to Muon?"""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from nero.layout import hidden_matrices
from nero_tools.models import MODELS


def names(model, **options):
    found = {id(param): name for name, param in model.named_parameters()}
    return [found[id(param)] for param in hidden_matrices(model, **options)]


class Translator(nn.Module):
    """Its forward pass would use the embedding as output layer too, so that it ends in a hidden layer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8))


def test_convolutions_gains_biases_and_the_output_layer_are_left_out():
    layers = [
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.Linear(8, 6),
        nn.Linear(6, 5),
        nn.Linear(5, 4),
    ]
    assert names(nn.Sequential(*layers)) == ["2.weight", "3.weight"]
    assert names(MODELS["resnet-tiny"]()) == []
    assert names(nn.LayerNorm(3)) == []


@pytest.mark.parametrize(
    ("name", "num"), [("gpt-tiny", 2 * 4), ("llama-tiny", 2 * 7), ("moe-tiny", 4 + 1 + 4 * 3)]
)
def test_of_a_transformer_the_blocks_are_hidden(name, num):
    """Whether the head is tied to the embedding or not."""
    found = names(MODELS[name]())
    assert len(found) == num
    assert all(each.startswith("blocks.") for each in found)


def test_outer_layers_can_be_named():
    model = Translator()
    assert names(model) == ["layers.0.weight"]
    assert names(model, outer_layers=()) == ["layers.0.weight", "layers.1.weight"]
    assert names(model, outer_layers=["layers.0"]) == ["layers.1.weight"]
    assert names(model, outer_layers=["layers"]) == []  # all that is inside
    with pytest.raises(AttributeError, match="head"):
        hidden_matrices(model, outer_layers=["head"])


def test_frozen_weights_are_left_out():
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
    model[1].requires_grad_(False)
    assert names(model) == ["0.weight", "2.weight"]


def test_parametrised_weights_and_those_of_other_modules_are_found():
    model = nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(4, 4)),
        nn.MultiheadAttention(4, 2),
        nn.LSTM(4, 4),
        parametrizations.spectral_norm(nn.Linear(4, 4)),
    )
    assert names(model) == [
        "0.parametrizations.weight.original",
        "1.in_proj_weight",
        "1.out_proj.weight",
        "2.weight_ih_l0",
        "2.weight_hh_l0",
    ]


def test_generators_of_weights_are_not_found():
    model = nn.Sequential(
        parametrizations.orthogonal(nn.Linear(4, 4)), nn.Linear(4, 4), nn.Linear(4, 2)
    )
    assert names(model) == ["1.weight"]


def test_torch_takes_them():
    model = MODELS["llama-tiny"]()
    torch.optim.Muon(hidden_matrices(model))  # it refuses what has other than two dims
