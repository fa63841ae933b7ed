"""What is counted on ranks that are not there is what real ranks send."""

import json
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor.debug import CommDebugMode

from nero.cli.arguments import CommandError
from nero_tools.models import MODELS, Llama
from nero_tools.plan.mesh import parse_ranks
from nero_tools.plan.shard import on_meta, shard_
from nero_tools.plan.simulate import OPTIMIZERS, fake_ranks, plan, step_cost
from tests.distributed.ranks import on_ranks

MESHES = {
    "fsdp=2,tp=2": [*OPTIMIZERS],
    "replicate=2,fsdp=2": ["nero", "nero-rows", "nero-polar", "adamw", "lamb"],
}
SMALL = partial(Llama, width=32, kv_width=16, hidden=48, num_layers=1, vocabulary=64)


def figures(cost):
    return [
        cost.state_bytes,
        cost.num_collectives,
        cost.communicated_bytes,
        dict(sorted(cost.collectives.items())),
    ]


@pytest.mark.slow
def test_four_real_ranks_send_what_was_planned(tmp_path):
    on_ranks(4, _measure, str(tmp_path / "real.json"))
    real = json.loads((tmp_path / "real.json").read_text())
    for mesh, names in MESHES.items():
        planned = plan(SMALL(), parse_ranks(mesh), optimizers=names).costs
        assert {name: figures(cost) for name, cost in planned.items()} == real[mesh], mesh


def _measure(path):
    real = {}
    for mesh, names in MESHES.items():
        model = shard_(SMALL(), parse_ranks(mesh))
        real[mesh] = {name: figures(step_cost(model, name)) for name in names}
    if dist.get_rank() == 0:
        with open(path, "w") as file:
            json.dump(real, file)


def test_counts_what_torch_counts():
    ranks = parse_ranks("fsdp=2,tp=2")
    with fake_ranks(ranks.size):
        model = shard_(on_meta(SMALL()), ranks)
        for name, build in OPTIMIZERS.items():
            ours = step_cost(model, name)
            optimizers = build(model)
            with CommDebugMode() as torch_own:
                for optimizer in optimizers:
                    optimizer.step()
            assert torch_own.get_total_counts() == ours.num_collectives, name


@pytest.mark.parametrize("name", ["llama-tiny", "gpt-tiny", "moe-tiny"])
def test_nero_sends_nothing_but_sums_of_neurons_that_are_cut(name):
    model = MODELS[name]()
    whole = plan(model, parse_ranks("replicate=2,fsdp=4"), optimizers=["nero", "adamw"]).costs
    assert whole["nero"].num_collectives == whole["nero"].communicated_bytes == 0
    assert whole["nero"].state_bytes < 0.1 * whole["adamw"].state_bytes
    cut = plan(model, parse_ranks("fsdp=2,tp=2"), optimizers=["nero"]).costs["nero"]
    assert cut.collectives == {"all_reduce": 1}
    # Five float64 sums per neuron and a flag per parameter, of the row-wise layers; half of them on a rank.
    rows = [m for n, m in model.named_modules() if n.endswith((".o", ".down", ".out"))]
    assert cut.communicated_bytes == sum(8 * (5 * m.out_features // 2 + 1) for m in rows)


def test_a_tied_head_stays_tied():
    model = MODELS["gpt-tiny"]()
    numel = sum(p.numel() for p in model.parameters())
    for mesh in ("fsdp=2", "fsdp=2,tp=2"):
        assert plan(model, parse_ranks(mesh), optimizers=[]).num_parameters == numel


def test_the_model_is_left_alone():
    model = MODELS["llama-tiny"]()
    before = model.head.weight.detach().clone()
    plan(model, parse_ranks("fsdp=2"), optimizers=["nero"])
    assert torch.equal(model.head.weight, before)
    assert model.head.weight.grad is None


def test_a_cut_needs_a_plan():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    with pytest.raises(CommandError, match="tp_plan"):
        plan(model, parse_ranks("tp=2"))
    assert not dist.is_initialized()
    model.tp_plan = {"0": "colwise_rep", "1": "rowwise"}
    assert plan(model, parse_ranks("tp=2")).costs["nero"].num_collectives == 1
    model.tp_plan = {"0": "sideways"}
    with pytest.raises(CommandError, match="'0' to 'sideways'"):
        plan(model, parse_ranks("tp=2"))


def test_more_ranks_than_rows():
    """Nero steps, and whoever cannot is left out of the table with its reason."""
    planned = plan(SMALL(), parse_ranks("replicate=2,fsdp=64,tp=2"), optimizers=["nero", "muon"])
    assert planned.costs["nero"].num_collectives == 1
    assert "placement" in planned.left_out["muon"]
