import pytest
import torch
from torch import nn

import nero
from nero.layout.guess import guess_layout


@pytest.mark.parametrize(
    ("name", "param", "cls", "role", "dims"),
    [
        ("bias", torch.randn(3, 4), "Any", "bias", None),
        ("attention_biases", torch.zeros(4, 9), "LevitAttention", "bias", None),
        ("relative_position_bias_table", torch.randn(81, 2), "Swin", "bias", None),
        ("A_log", torch.randn(8, 4), "MambaMixer", "other", None),
        ("log_scale", torch.randn(8, 4), "Any", "other", None),
        ("log", torch.randn(8, 4), "Any", "neuron", (0,)),
        ("gamma", torch.randn(1, 4, 1, 1), "Any", "other", None),
        ("weight", torch.ones(8), "MyRMSNorm", "gain", None),
        ("weight", torch.zeros(8), "GemmaLikeRMSNorm", "other", None),
        ("weight", torch.zeros(8, device="meta"), "GemmaLikeRMSNorm", "gain", None),
        ("scale", torch.full((4, 8), 0.1), "Any", "other", None),
        ("scale", torch.zeros(4, 8), "Any", "neuron", (0,)),
        ("experts", torch.randn(2, 3, 4), "Any", "neuron", (0, 1)),
        ("kernel", torch.randn(6, 4, 3, 3), "Any", "neuron", (0,)),
    ],
)
def test_guesses(name, param, cls, role, dims):
    layout, why = guess_layout(param, name, cls)
    assert (layout.role, layout.neuron_dims) == (role, dims)
    assert why


def test_table_of_biases_in_an_embedding():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.relative_attention_bias = nn.Embedding(32, 8)
            self.embed = nn.Embedding(32, 8)

    rows = {row.name: row.role for row in nero.describe(Attention()).rows}
    assert rows == {"relative_attention_bias.weight": "bias", "embed.weight": "embedding"}


def test_constant_matrix_stays():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.full((4, 8), 0.5))

    scale = Scale()
    nero.Nero(scale)
    assert (scale.scale == 0.5).all()
