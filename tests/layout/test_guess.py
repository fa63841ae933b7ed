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
        ("pos", torch.randn(6, 4), "GPT", "embedding", (0,)),
        ("pos_embed", torch.zeros(1, 6, 4), "ViT", "embedding", (0, 1)),
        ("pos_embed", torch.randn(1, 6, 6, 4), "ViT", "other", None),
        ("posEmb2", torch.randn(6, 4), "ViT", "embedding", (0,)),
        ("cls_token", torch.zeros(1, 1, 4), "ViT", "embedding", (0, 1)),
        ("class_embedding", torch.randn(4), "CLIP", "embedding", ()),
        ("deep_prompts", torch.randn(3, 6, 4), "VPT", "embedding", (0, 1)),
        ("queries", torch.randn(6, 4), "Decoder", "embedding", (0,)),
        ("query_proj", torch.randn(6, 4), "Attention", "neuron", (0,)),
        ("query_scale", torch.randn(4), "Attention", "other", None),
        ("pos_weight", torch.randn(4), "Loss", "other", None),
        ("unembed", torch.randn(6, 4), "GPT", "neuron", (0,)),
        ("anything", torch.randn(1, 6, 4), "Any", "embedding", (0, 1)),
        ("weight", torch.randn(6, 4), "LearnedPositionalEncoding", "embedding", (0,)),
        ("weight", torch.randn(6, 4), "PatchEmbedding", "neuron", (0,)),
        ("embed_gain", torch.ones(4), "EmbedNorm", "gain", None),
        ("rel_pos_h", torch.randn(9, 4), "Attention", "other", None),
        ("rel_pos_const", torch.randn(1, 4, 1), "Attention", "other", None),
    ],
)
def test_guesses(name, param, cls, role, dims):
    layout, why, _ = guess_layout(param, name, cls)
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


@pytest.mark.parametrize(
    ("name", "shape", "is_doubtful"),
    [
        ("rel_pos_h", (9, 4), True),
        ("rel_pos_h", (4,), False),
        ("pos_embed", (1, 6, 6, 4), True),
        ("A_log", (6, 4), False),
        ("scale", (4,), False),
    ],
)
def test_a_doubt_is_told(name, shape, is_doubtful):
    assert guess_layout(torch.randn(shape), name, "Any").is_doubtful == is_doubtful


def test_a_query_beside_a_key_is_a_layer():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key = (nn.Parameter(torch.randn(4, 4)) for _ in range(2))

    class Pool(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = nn.Parameter(torch.randn(4, 4))

    assert [row.role for row in nero.describe(Attention()).rows] == ["neuron", "neuron"]
    assert [row.role for row in nero.describe(Pool()).rows] == ["embedding"]


def test_a_list_is_named_by_its_module():
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.prompts = nn.ParameterList([torch.randn(3, 4), torch.randn(3, 4)])
            self.layers = nn.ParameterList([torch.randn(3, 4)])

    rows = {row.name: row.role for row in nero.describe(Deep()).rows}
    assert rows == {"prompts.0": "embedding", "prompts.1": "embedding", "layers.0": "neuron"}


def test_all_guesses_are_named_or_counted():
    class Many(nn.Module):
        def __init__(self, count):
            super().__init__()
            for i in range(count):
                self.register_parameter(f"w{i}", nn.Parameter(torch.randn(3, 4)))

    with pytest.warns(nero.LayoutWarning, match="of `w0`, `w1`, `w2` are guessed"):
        nero.Nero(Many(3))
    with pytest.warns(nero.LayoutWarning, match="`w3` and 2 more are guessed"):
        nero.Nero(Many(6))


class Mask(nn.Module):
    """Its original is the weight."""

    def forward(self, weight):
        return weight * torch.ones(weight.shape[-1])


class Symmetric(nn.Module):
    """Its original generates the weight."""

    def forward(self, weight):
        return weight.triu() + weight.triu(1).mT


@pytest.mark.parametrize(("kind", "role"), [(Mask, "neuron"), (Symmetric, "other")])
def test_custom_parametrizations_are_seen_or_doubted(kind, role):
    model = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(model, "weight", kind())
    before = model.weight.detach().clone()
    with pytest.warns(nero.LayoutWarning, match=r"original` are guessed .*in doubt"):
        nero.Nero(model)
    assert torch.equal(model.weight, before)
    (row,) = [
        row
        for row in nero.describe(model, example=torch.randn(2, 4)).rows
        if row.name == "parametrizations.weight.original"
    ]
    assert row.role == role


@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "cayley", "householder"])
def test_a_generator_of_orthogonal_weights_is_left_alone(orthogonal_map):
    model = nn.utils.parametrizations.orthogonal(nn.Linear(4, 4), orthogonal_map=orthogonal_map)
    before = model.weight.detach().clone()
    for example in (None, torch.randn(2, 4)):
        optimizer = nero.Nero(model, fused=False, example=example)
        assert torch.equal(model.weight, before)
        (group,) = [g for g in optimizer.param_groups if g["params"][0].ndim == 2]
        assert group["role"] == "other"


def test_constant_matrix_stays():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.full((4, 8), 0.5))

    scale = Scale()
    nero.Nero(scale)
    assert (scale.scale == 0.5).all()
