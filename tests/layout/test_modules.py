"""Every module that has a registered layout has the right neurons."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from nero import LayoutError, describe, param_groups, register_layout
from nero.layout import BIAS, neurons

LINEAR_BIAS = {"weight": ("neuron", 3, 4), "bias": ("bias", 3, 1)}
NORM = {"weight": ("gain", 4, 1), "bias": ("bias", 4, 1)}

# module: {parameter: (role, number of neurons, fan-in)}
MODULES = [
    (nn.Linear(4, 3), LINEAR_BIAS),
    (nn.Bilinear(2, 5, 3), {"weight": ("neuron", 3, 10), "bias": ("bias", 3, 1)}),
    (nn.Conv1d(4, 6, 3), {"weight": ("neuron", 6, 12), "bias": ("bias", 6, 1)}),
    (nn.Conv2d(4, 6, 3, groups=2), {"weight": ("neuron", 6, 18), "bias": ("bias", 6, 1)}),
    (nn.Conv3d(1, 2, 3), {"weight": ("neuron", 2, 27), "bias": ("bias", 2, 1)}),
    (nn.ConvTranspose1d(4, 6, 3), {"weight": ("neuron", 6, 12), "bias": ("bias", 6, 1)}),
    (nn.ConvTranspose2d(4, 6, 3, groups=2), {"weight": ("neuron", 6, 18), "bias": ("bias", 6, 1)}),
    (nn.ConvTranspose3d(2, 2, 2), {"weight": ("neuron", 2, 16), "bias": ("bias", 2, 1)}),
    (nn.Embedding(10, 4), {"weight": ("embedding", 10, 4)}),
    (nn.EmbeddingBag(10, 4), {"weight": ("embedding", 10, 4)}),
    (
        nn.MultiheadAttention(4, 2),
        {
            "in_proj_weight": ("neuron", 12, 4),
            "in_proj_bias": ("bias", 12, 1),
            "out_proj.weight": ("neuron", 4, 4),
            "out_proj.bias": ("bias", 4, 1),
        },
    ),
    (
        nn.MultiheadAttention(4, 2, kdim=3, vdim=5, add_bias_kv=True, bias=False),
        {
            "q_proj_weight": ("neuron", 4, 4),
            "k_proj_weight": ("neuron", 4, 3),
            "v_proj_weight": ("neuron", 4, 5),
            "bias_k": ("neuron", 1, 4),
            "bias_v": ("neuron", 1, 4),
            "out_proj.weight": ("neuron", 4, 4),
        },
    ),
    (
        nn.LSTM(3, 4, proj_size=2),
        {
            "weight_ih_l0": ("neuron", 16, 3),
            "weight_hh_l0": ("neuron", 16, 2),
            "bias_ih_l0": ("bias", 16, 1),
            "bias_hh_l0": ("bias", 16, 1),
            "weight_hr_l0": ("neuron", 2, 4),
        },
    ),
    (
        nn.GRU(3, 4, bias=False),
        {"weight_ih_l0": ("neuron", 12, 3), "weight_hh_l0": ("neuron", 12, 4)},
    ),
    (
        nn.RNN(3, 4, bias=False),
        {"weight_ih_l0": ("neuron", 4, 3), "weight_hh_l0": ("neuron", 4, 4)},
    ),
    (
        nn.GRUCell(3, 4, bias=False),
        {"weight_ih": ("neuron", 12, 3), "weight_hh": ("neuron", 12, 4)},
    ),
    (nn.BatchNorm2d(4), NORM),
    (nn.InstanceNorm1d(4, affine=True), NORM),
    (nn.GroupNorm(2, 4), NORM),
    (nn.LayerNorm((2, 2)), NORM),  # 2-D, but not neurons
    (nn.RMSNorm(4), {"weight": ("gain", 4, 1)}),
    (nn.PReLU(4), {"weight": ("other", 4, 1)}),
    (
        parametrizations.weight_norm(nn.Linear(4, 3)),
        {
            "bias": ("bias", 3, 1),
            "parametrizations.weight.original0": ("gain", 3, 1),
            "parametrizations.weight.original1": ("neuron", 3, 4),
        },
    ),
    (
        parametrizations.spectral_norm(nn.ConvTranspose2d(4, 6, 3, groups=2, bias=False), dim=1),
        {"parametrizations.weight.original": ("neuron", 6, 18)},
    ),
    (
        parametrizations.orthogonal(nn.Linear(4, 3, bias=False)),
        {"parametrizations.weight.original": ("other", 12, 1)},
    ),
    (nn.utils.spectral_norm(nn.Linear(4, 3, bias=False)), {"weight_orig": ("neuron", 3, 4)}),
    (nn.TransformerDecoderLayer(4, 1, 8), None),  # a container: only that nothing in it is unknown
]


@pytest.mark.parametrize(("module", "expected"), MODULES, ids=lambda x: type(x).__name__)
def test_module(module, expected):
    rows = describe(module).rows
    assert {row.name for row in rows} == {name for name, _ in module.named_parameters()}
    assert not any("not registered" in row.reason for row in rows)
    if expected is not None:
        assert {r.name: (r.role, r.num_neurons, r.fan_in) for r in rows} == expected


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_weight_norm_by_hook():
    rows = {
        row.name: row for row in describe(nn.utils.weight_norm(nn.Linear(4, 3, bias=False))).rows
    }
    assert rows["weight_g"].role == "gain"
    assert rows["weight_v"].role == "neuron"
    assert rows["weight_v"].fan_in == 4


def test_gpt2_of_hugging_face():
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config(n_layer=1))
    rows = {row.name: row for row in describe(model).rows}
    attention = rows["transformer.h.0.attn.c_attn.weight"]
    assert (attention.num_neurons, attention.fan_in, attention.reason) == (2304, 768, "Conv1D")
    tied = rows["transformer.wte.weight"]
    assert tied.reason == "Embedding; tied to lm_head.weight"
    assert not any("not registered" in row.reason for row in rows.values())


@pytest.mark.parametrize(
    ("config", "model", "parameter", "num_neurons", "fan_in"),
    [
        # (expert, out, in)
        ("MixtralConfig", "MixtralForCausalLM", "mlp.experts.gate_up_proj", 4 * 2 * 32, 16),
        ("MixtralConfig", "MixtralForCausalLM", "mlp.experts.down_proj", 4 * 16, 32),
        # (expert, in, out), which Hugging Face marks as transposed
        ("GptOssConfig", "GptOssForCausalLM", "mlp.experts.gate_up_proj", 4 * 2 * 32, 16),
        ("GptOssConfig", "GptOssForCausalLM", "mlp.experts.down_proj", 4 * 16, 32),
    ],
)
def test_stacked_experts_of_hugging_face(config, model, parameter, num_neurons, fan_in):
    import transformers

    options = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8}
    config = getattr(transformers, config)(num_local_experts=4, **options, **heads)
    with torch.device("meta"):
        model = getattr(transformers, model)(config)
    rows = {row.name.removeprefix("model.layers.0."): row for row in describe(model).rows}
    assert (rows[parameter].num_neurons, rows[parameter].fan_in) == (num_neurons, fan_in)
    assert rows["input_layernorm.weight"].role == "gain"
    for name, row in rows.items():
        if name.endswith("_bias") or name.endswith(".bias"):
            assert row.role == "bias", name


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls_token = nn.Parameter(torch.randn(1, 1, 8))
        self.pos_embed = nn.Parameter(torch.randn(1, 5, 8))
        self.table = nn.Parameter(torch.randn(3, 8))
        self.experts = nn.Parameter(torch.randn(2, 3, 8))
        self.experts_bias = nn.Parameter(torch.randn(2, 3))
        self.temperature = nn.Parameter(torch.tensor(1.0))
        self.scale = nn.Parameter(torch.ones(8))


class MyRMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))


def test_unknown_modules_are_guessed_and_say_so():
    rows = {r.name: r for r in describe(nn.ModuleDict({"a": Custom(), "b": MyRMSNorm()})).rows}
    assert {n: (r.role, r.num_neurons, r.fan_in) for n, r in rows.items()} == {
        "a.cls_token": ("embedding", 1, 8),
        "a.pos_embed": ("embedding", 5, 8),
        "a.table": ("neuron", 3, 8),
        "a.experts": ("neuron", 6, 8),
        "a.experts_bias": ("bias", 6, 1),
        "a.temperature": ("other", 1, 1),
        "a.scale": ("other", 8, 1),
        "b.weight": ("gain", 8, 1),
    }
    assert all("not registered" in row.reason for row in rows.values())


def test_register_layout_teaches_a_class_and_its_subclasses():
    class InOut(nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(10, 20))
            self.shift = nn.Parameter(torch.randn(20))

    class Child(InOut):
        pass

    register_layout(InOut, {"kernel": neurons(1), "shift": BIAS})
    for module in (InOut(), Child()):
        kernel, shift = describe(module).rows
        assert (kernel.num_neurons, kernel.fan_in, shift.role) == (20, 10, "bias")
        assert kernel.reason == type(module).__name__


def test_registering_a_class_again_replaces_its_rules():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(10, 20))
            self.offset = nn.Parameter(torch.randn(20))

    register_layout(Mixed, {"*": BIAS})
    assert {row.role for row in describe(Mixed()).rows} == {"bias"}
    register_layout(Mixed, {"kernel": neurons(1)})
    kernel, offset = describe(Mixed()).rows
    assert (kernel.num_neurons, kernel.fan_in, kernel.reason) == (20, 10, "Mixed")
    assert "not registered" in offset.reason


def test_lazy_modules_must_run_first():
    with pytest.raises(LayoutError, match=r"`0.weight` has no shape yet"):
        describe(nn.Sequential(nn.LazyLinear(3)))


class PreNormBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 8))
        self.debias_proj = nn.Parameter(torch.randn(4, 8))


def test_names_are_read_as_whole_words():
    assert {row.role for row in describe(PreNormBlock()).rows} == {"neuron"}


def test_modules_may_refer_to_their_parents():
    parent, child = nn.Sequential(nn.Linear(4, 3)), nn.Linear(3, 2)
    parent.append(child)
    child.parent = parent
    assert len(describe(parent).rows) == 4


def test_the_share_of_adams_state_is_of_what_is_trained():
    model = nn.Sequential(nn.Linear(1000, 1000), nn.Linear(1000, 2)).bfloat16()
    model[0].requires_grad_(False)
    description = describe(model)
    assert description.adam_state_bytes == 2 * 2 * 2002


class TestOverrides:
    def model(self):
        return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))

    def test_the_first_match_counts(self):
        groups = param_groups(
            self.model(),
            overrides=[("2.weight", {"lr": 0.1}), ("*.weight", {"lr": 0.2, "beta": 0.9})],
        )
        rates = {name: group.get("lr") for group in groups for name, _ in group["params"]}
        assert rates == {
            "0.weight": 0.2, "1.weight": 0.2, "2.weight": 0.1,
            "0.bias": None, "1.bias": None, "2.bias": None,
        }  # fmt: skip

    def test_a_layout_can_be_overridden(self):
        overrides = [("0.weight", {"neuron_dims": (1,)}), ("2.weight", {"role": "other"})]
        rows = {row.name: row for row in describe(self.model(), overrides=overrides).rows}
        assert (rows["0.weight"].num_neurons, rows["0.weight"].fan_in) == (4, 3)
        assert rows["0.weight"].reason == "override '0.weight'"
        assert rows["2.weight"].role == "other"

    def test_a_mapping_and_a_single_dim_will_do(self):
        rows = describe(self.model(), overrides={"0.weight": {"neuron_dims": 1}}).rows
        assert rows[0].num_neurons == 4

    def test_num_groups_alone_keeps_the_layout(self):
        layer = nn.ConvTranspose2d(8, 4, 3)
        row = describe(layer, overrides=[("weight", {"num_groups": 2})]).rows[0]
        assert (row.num_neurons, row.fan_in) == (8, 36)

    @pytest.mark.parametrize(
        "options",
        [{"role": "gain", "neuron_dims": (0,)}, {"role": "synapse"}, {"neuron_dims": (5,)}],
        ids=str,
    )
    def test_an_impossible_layout_is_an_error(self, options):
        with pytest.raises(LayoutError, match=r"`0\.weight`"):
            describe(self.model(), overrides=[("0.weight", options)])
