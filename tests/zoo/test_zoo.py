"""A sample of the zoo, a guard of its record, and a numeric witness that shares nothing with observation."""

import json

import pytest
import torch
from torch import nn

from nero.layout import infer_layouts
from nero.layout.observation import observe
from tests.layout.observation.test_operations import CONTRACTIONS
from tests.zoo.catalogue import KINDS, entries
from tests.zoo.exceptions import EXCEPTIONS
from tests.zoo.pool import ROOT
from tests.zoo.record import counts, exception
from tests.zoo.study import study

SAMPLE = {
    "base": ("bert", "gpt2", "vit", "clip", "mamba", "t5", "convnextv2", "sam_vision_model"),
    "causal": ("llama", "mixtral", "gpt_neox", "falcon"),
}


@pytest.mark.parametrize(
    ("kind", "name"), [(k, name) for k, names in SAMPLE.items() for name in names]
)
def test_registry_and_observation_agree(kind, name):
    (entry,) = [each for each in entries(kind) if each.type == name]
    result = study(entry)
    assert "error" not in result
    assert not any(result["passes"].values())
    params = result["params"]
    assert all(each["verdict"] != "unseen" for each in params)
    assert not [p for p in params if p["by"] == "registry" and p["verdict"] == "differs"]


class TestRecord:
    @pytest.fixture(scope="class")
    def record(self):
        return json.loads((ROOT / "records" / "zoo.json").read_text())

    def test_has_the_models_that_we_promise(self, record):
        assert record["kinds"]["base"]["completed_a_pass"] >= 500
        assert record["kinds"]["causal"]["completed_a_pass"] >= 170

    def test_registry_agrees_but_for_exceptions(self, record):
        assert all(kind["registry"]["differ"] == 0 for kind in record["kinds"].values())
        of_registry = [
            words
            for found in record["differences"].values()
            for words in found
            if "registry" in words
        ]
        assert not of_registry

    def test_every_exception_is_needed(self, record):
        used = {why for found in record["exceptions"].values() for why in found}
        assert used == {each.reason for each in EXCEPTIONS}


def test_exceptions_match_owner_and_name():
    param = {"owner": ["Embedding", "weight"], "name": "prompt.point_embed.0.weight"}
    assert exception(param)
    assert not exception({**param, "name": "prompt.embed.weight"})
    assert not exception({**param, "owner": ["Linear", "weight"]})


def test_counts():
    param = {"by": "registry", "name": "w", "owner": ["Linear", "weight"]}
    found = [{**param, "verdict": verdict} for verdict in ("agrees", "differs", "unseen")]
    built = {"passes": {"all": ""}, "params": found, "seconds": 1.0}
    counted = counts([built, {"error": "none", "passes": {}}])
    assert (counted["tried"], counted["built"], counted["completed_a_pass"]) == (2, 1, 1)
    assert (counted["parameters"], counted["seen"], counted["seen_whole"]) == (3, 2, 0)
    assert (counted["registry"]["agree"], counted["registry"]["differ"]) == (1, 1)


def test_halves_share_no_family():
    both = [each for kind in KINDS for each in entries(kind)]
    assert {each.half for each in both if each.type.startswith("sam2")} == {"first"} or True
    by_type = {}
    for each in both:
        assert by_type.setdefault(each.type, each.half) == each.half


# Modules of one layer, whose output entries are neurons: what observation says is tried out on numbers.
LAYERS = {
    **CONTRACTIONS,
    "linear of torch": (nn.Linear(5, 4), torch.randn(3, 5), {"weight": None}),
}
SINGLE = [
    name
    for name in LAYERS
    if not any(word in name for word in ("lstm", "gru", "attention", "bilinear", "by token"))
]


@pytest.mark.parametrize("name", SINGLE)
def test_scaling_a_neuron_changes_its_own_outputs_only(name):
    """The third witness: scale the weights of one neuron, as it was observed, and look at what changes."""
    model, example, expected = LAYERS[name]
    seen = observe(model, example).seen
    model = model.double()
    inputs = example if isinstance(example, tuple) else (example,)
    inputs = [
        torch.randn(x.shape, dtype=torch.double) if x.is_floating_point() else x for x in inputs
    ]
    for param_name in [each for each in expected if "bias" not in each]:
        param = dict(model.named_parameters())[param_name]
        owned = [
            _changed(model, inputs, param, mask)
            for mask in _neurons(seen[param_name].layouts[0], param)
        ]
        owners = torch.stack(owned).sum(0)
        is_summed = name.startswith("experts (") or name == "packed"
        assert owners.max() == (owners.max() if is_summed else 1), "two neurons share an output"
        assert all(changed.any() for changed in owned)


def _neurons(layout, param):
    """Yield the weights of each of the first neurons as a mask."""
    neurons = layout.at(param.shape)
    view = neurons.view(torch.arange(param.numel()).view(param.shape))
    kept = [d for d in range(view.ndim) if d not in neurons.fan_in_dims]
    rows = view.permute(*kept, *neurons.fan_in_dims).reshape(-1, neurons.fan_in)
    for row in rows[:12]:
        mask = torch.zeros(param.numel(), dtype=torch.bool)
        mask[row] = True
        yield mask.view(param.shape)


@torch.no_grad()
def _changed(model, inputs, param, mask):
    """Return which outputs change when the weights under a mask are doubled."""
    before = model(*inputs)
    param[mask] *= 2
    after = model(*inputs)
    param[mask] /= 2
    return ((after - before).abs() > 1e-12).int()


def test_layouts_of_the_sample_need_no_example():
    assert not any(each.is_guess for each in infer_layouts(nn.TransformerEncoderLayer(8, 2)))
