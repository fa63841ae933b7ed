"""A sample of the zoo, a guard of its record, and a numeric witness of what observation says."""

import copy
import json
from collections import Counter

import pytest
import torch
from torch import nn

from nero.layout import neurons
from nero.layout.observation import observe
from tests.layout.observation.test_operations import CONTRACTIONS
from tests.zoo.catalogue import KINDS, entries
from tests.zoo.exceptions import EXCEPTIONS
from tests.zoo.pool import ROOT
from tests.zoo.study import study
from tests.zoo.zoo_record import counts, exception

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


@pytest.fixture(scope="module")
def record():
    return json.loads((ROOT / "records" / "zoo.json").read_text())


class TestRecord:
    def test_has_the_models_that_we_promise(self, record):
        assert record["kinds"]["base"]["completed_a_pass"] >= 550
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
    everything = [each for kind in KINDS for each in entries(kind)]
    for family in ("sam2", "clip", "qwen2_vl", "gemma3"):
        members = {each.half for each in everything if each.type in (family, *_parts_of(family))}
        assert len(members) == 1
    sizes = Counter(each.half for each in everything)
    assert abs(sizes["first"] - sizes["second"]) < 0.1 * len(everything)


def _parts_of(family):
    return [f"{family}_{part}" for part in ("text", "text_model", "vision_model", "vision")]


# The output entries of these are their neurons, or sums of neurons of several parts of the weight.
SUMS = ("experts (expert, out, in)", "experts (expert, in, out)", "packed")
STACKED = ("lstm", "gru", "gru cell", "attention", "attention of other sizes", "experts by token")
WITNESSED = {
    name: (model, example, [each for each in expected if "bias" not in each])
    for name, (model, example, expected) in CONTRACTIONS.items()
    if name not in STACKED
}


@pytest.mark.parametrize("name", WITNESSED)
def test_scaling_a_neuron_changes_its_own_outputs_only(name):
    """Scale the weights of one neuron, as it was observed, and look at what changes."""
    model, example, weights = WITNESSED[name]
    seen = observe(model, example).seen
    model = copy.deepcopy(model)
    inputs = example if isinstance(example, tuple) else (example,)
    for weight in weights:
        param = model.get_parameter(weight)
        masks = list(_neurons(seen[weight].layouts[0], param))
        owned = torch.stack([_changed(model, inputs, param, mask) for mask in masks])
        assert owned.flatten(1).any(1).all(), "a neuron without an output"
        num_owners = owned.sum(0)
        assert num_owners.max() == (3 if name in SUMS else 1), "neurons share an output"
        assert num_owners.min() > 0, "an output without a neuron"


def test_the_witness_can_contradict():
    """Read along the wrong dim, every weight of a Linear reaches all of its outputs."""
    model, x = nn.Linear(4, 3), torch.randn(5, 4)
    owned = [
        _changed(model, [x], model.weight, mask) for mask in _neurons(neurons(1), model.weight)
    ]
    assert torch.stack(owned).sum(0).max() == 4


def _neurons(layout, param):
    """Yield the weights of each neuron as a mask."""
    cut = layout.at(param.shape)
    view = cut.view(torch.arange(param.numel()).view(param.shape))
    kept = [d for d in range(view.ndim) if d not in cut.fan_in_dims]
    rows = view.permute(*kept, *cut.fan_in_dims).reshape(-1, cut.fan_in)
    for row in rows:
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
    return ((after - before).abs() > 1e-9).int()
