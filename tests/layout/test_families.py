"""Hugging Face models whose layouts were wrong once: gains read as neurons, transposed weights."""

import importlib

import pytest
import torch
from torch import nn

import nero
from nero.layout import infer_layouts
from nero.layout.registry import _RULES
from tests.zoo.builder import build
from tests.zoo.inputs import variants

transformers = pytest.importorskip("transformers")

# By the end of a parameter's name: its role, and how many weights a neuron has. Without neurons only a
# forward pass tells the role, so that without an example "other" is right as well.
FAMILIES = {
    "convnextv2": ("ConvNextV2Model", {"grn.weight": ("gain", 1), "grn.bias": ("bias", 1)}),
    "wavlm": (
        "WavLMModel",
        {"gru_rel_pos_const": ("gain", 1), "gru_rel_pos_linear.weight": ("neuron", 64)},
    ),
    "rwkv": (
        "RwkvModel",
        {
            **{f"attention.time_mix_{x}": ("gain", 1) for x in ("key", "value", "receptance")},
            "attention.time_decay": ("other", 1),
            "attention.time_first": ("bias", 1),
            "attention.key.weight": ("neuron", 4096),
        },
    ),
    "mamba": (
        "MambaModel",
        {
            "mixer.A_log": ("other", 1),
            "mixer.D": ("gain", 1),
            "mixer.in_proj.weight": ("neuron", 768),
        },
    ),
    "kimi_linear": ("KimiLinearModel", {"A_log": ("other", 1)}),
    "levit": ("LevitModel", {"attention_biases": ("bias", 1)}),
    "llama4_text": (
        "Llama4TextModel",
        {"experts.gate_up_proj": ("neuron", 5120), "experts.down_proj": ("neuron", 8192)},
    ),
    "recurrent_gemma": (
        "RecurrentGemmaModel",
        {
            "input_gate_weight": ("neuron", 256),
            "recurrent_gate_weight": ("neuron", 256),
            "input_gate_bias": ("bias", 1),
            "recurrent_param": ("other", 1),
        },
    ),
    "csm": ("CsmForConditionalGeneration", {"codebooks_head.weight": ("neuron", 1024)}),
    "gemma3": ("Gemma3Model", {"mm_input_projection_weight": ("neuron", 768)}),
    "sam_vision_model": ("SamVisionModel", {"pos_embed": ("embedding", 768)}),
    "t5": ("T5Model", {"relative_attention_bias.weight": ("bias", 1)}),
}


@pytest.fixture(scope="module")
def models():
    return {name: build(name, cls)[0] for name, (cls, _) in FAMILIES.items()}


def wrong(found, expected, *, is_seen):
    """Return what differs from what is expected, and check that every name occurs."""
    differs = []
    for ending, (role, fan_in) in expected.items():
        matching = [each for each in found if each.name.endswith(ending)]
        assert matching, ending
        for each in matching:
            roles = {role} if is_seen or fan_in > 1 else {role, "other"}
            neurons = each.layout.at(each.param.shape)
            if neurons.role not in roles or neurons.fan_in != fan_in:
                differs.append((each.name, tuple(each.param.shape), each.layout, each.reason))
    return differs


@pytest.mark.parametrize("family", FAMILIES)
def test_right_without_an_example(family, models):
    assert not wrong(infer_layouts(models[family]), FAMILIES[family][1], is_seen=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_right_with_an_example(family, models, monkeypatch):
    monkeypatch.setenv("TRANSFORMERS_DISABLE_TORCH_CHECK", "1")  # no values, so no image tokens
    model = models[family]
    found = infer_layouts(model, variants(model)[0])
    assert not wrong(found, FAMILIES[family][1], is_seen=True)


@pytest.mark.parametrize("key", [key for key in _RULES if isinstance(key, str)])
def test_registered_classes_exist(key):
    module, _, name = key.rpartition(".")
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    "key", ["nemotron.NemotronLayerNorm1P", "videoprism.VideoPrismLayerNorm", "gemma.GemmaRMSNorm"]
)
def test_norms_by_one_plus_weight_are_no_gains(key):
    family, name = key.split(".")
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    norm = getattr(module, name)(8)
    for found in (infer_layouts(norm), infer_layouts(norm, torch.randn(2, 8))):
        assert next(each.layout.role for each in found if each.name == "weight") == "other"


def test_experts_of_dbrx_share_a_dim():
    from transformers.models.dbrx.modeling_dbrx import DbrxExpertGLU

    config = transformers.models.dbrx.configuration_dbrx.DbrxFFNConfig(
        hidden_size=4, ffn_hidden_size=6, moe_num_experts=3
    )
    found = {each.name: each for each in infer_layouts(DbrxExpertGLU(config))}
    fan_ins = {name: each.layout.at(each.param.shape).fan_in for name, each in found.items()}
    assert fan_ins == {"w1": 4, "v1": 4, "w2": 6}


def test_kernels_of_keras_need_an_example():
    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(4, 3))

        def forward(self, x):
            return torch.matmul(x, self.kernel)

    (seen,) = infer_layouts(Dense(), torch.randn(2, 5, 4))
    assert seen.layout.neuron_dims == (1,)


def tiny(cls, config, *inputs, **options):
    torch.manual_seed(0)
    return getattr(transformers, cls)(getattr(transformers, config)(**options)), inputs


def pixels(size):
    return torch.randn(2, 3, size, size)


def fresh(batch):
    return torch.randn_like(batch) if batch.is_floating_point() else torch.randint_like(batch, 32)


TINY = {
    "convnextv2": lambda: tiny(
        *("ConvNextV2Model", "ConvNextV2Config", pixels(32)),
        **{"hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 1, 1], "drop_path_rate": 0.0},
    ),
    "mamba": lambda: tiny(
        *("MambaModel", "MambaConfig", torch.randint(32, (2, 12))),
        **{"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},
    ),
    "rwkv": lambda: tiny(
        *("RwkvModel", "RwkvConfig", torch.randint(32, (2, 12))),
        **{"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2},
    ),
    "llama4": lambda: tiny(
        *("Llama4TextModel", "Llama4TextConfig", torch.randint(32, (2, 12))),
        **{"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2},
        **{"intermediate_size_mlp": 24, "num_attention_heads": 2, "num_key_value_heads": 2},
        **{"head_dim": 8, "num_local_experts": 2, "pad_token_id": 0},
    ),
    "wavlm": lambda: tiny(
        *("WavLMModel", "WavLMConfig", torch.randn(2, 1600)),
        **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
        **{"intermediate_size": 24, "conv_dim": [8] * 7, "num_conv_pos_embeddings": 8},
        **{"num_conv_pos_embedding_groups": 2, "layerdrop": 0.0, "mask_time_prob": 0.0},
    ),
    "t5": lambda: tiny(
        *("T5EncoderModel", "T5Config", torch.randint(32, (2, 12))),
        **{"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2},
    ),
    "sam": lambda: tiny(
        *("SamVisionModel", "SamVisionConfig", pixels(32)),
        **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_dim": 24},
        **{"image_size": 32, "patch_size": 8, "window_size": 2, "output_channels": 8},
        **{"global_attn_indexes": [1], "mlp_ratio": 1.5},
    ),
}


@pytest.mark.parametrize("family", TINY)
def test_twenty_steps_keep_gains_and_states(family):
    """Of what has no fan-in nothing moves by more than 20% of its scale, which is what Nero measures it by.

    The scale is the mean magnitude at the start, or `bias_scale` for what starts at zero. Every step has a
    batch of its own: twenty equal gradients would come to 20 steps of 1%.
    """
    model, inputs = TINY[family]()
    optimizer = nero.Nero(model, lr=0.01)
    before = {name: param.detach().clone() for name, param in model.named_parameters()}
    for _ in range(20):
        out = model(*map(fresh, inputs))[0]
        optimizer.zero_grad()
        (out - torch.randn_like(out)).square().mean().backward()
        optimizer.step()
    described = {row.name: row for row in nero.describe(model).rows}
    checked = 0
    for name, param in model.named_parameters():
        if described[name].fan_in > 1 or param.grad is None:
            continue
        scale = before[name].abs().mean() or torch.tensor(0.01)
        moved = (param.detach() - before[name]).square().mean().sqrt() / scale
        assert moved <= 0.2, (name, float(moved))
        checked += 1
    assert checked >= 4
