"""Are the neurons that ZeRO's ranges cut counted right? Held to a loop over every element."""

import pytest
import torch
from torch import nn

import nero
from nero.cli.arguments import CommandError
from nero.layout import BIAS, neurons
from nero_tools.plan import zero
from nero_tools.plan.command import table
from nero_tools.plan.mesh import Ranks, parse_ranks
from nero_tools.plan.simulate import plan
from nero_tools.plan.zero import deepspeed_muon_cost, flatten, shares

LAYOUTS = [
    ((7, 5), neurons(0)),
    ((5, 6), neurons(1)),  # as of a Conv1D of Hugging Face: every neuron is spread over the matrix
    ((4, 3, 5), neurons(0, 1)),
    ((6, 4, 3), neurons(1, num_groups=2)),
    ((9,), BIAS),
    ((3, 2, 2), neurons(0)),
]


def by_element(num_ranks, stage):
    """Return the same as `shares`, element by element, with the ranges in plain Python."""
    numels = [torch.Size(shape).numel() for shape, _ in LAYOUTS]
    total = sum(numels)
    padded = -(-total // (2 * num_ranks)) * 2 * num_ranks
    ranks_of: dict[tuple[int, int], set[int]] = {}
    elements = [0] * num_ranks
    position = 0
    for which, (shape, layout) in enumerate(LAYOUTS):
        at = layout.at(shape)
        ids = torch.arange(at.num_neurons).view(at.state_shape)
        view = at.view(torch.zeros(shape))
        if at.num_groups > 1:
            ids = torch.arange(at.num_neurons).view(2, 1, shape[1], 1)
        owner = (ids.expand(view.shape) if not at.is_elementwise else ids).flatten().tolist()
        for place, neuron in enumerate(owner):
            size = -(-numels[which] // num_ranks) if stage == 3 else padded // num_ranks
            rank = (place if stage == 3 else position) // size
            elements[rank] += 1
            ranks_of.setdefault((which, neuron), set()).add(rank)
            position += 1
    numbers = [sum(rank in ranks for ranks in ranks_of.values()) for rank in range(num_ranks)]
    return elements, numbers, sum(len(ranks) > 1 for ranks in ranks_of.values())


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("num_ranks", [2, 3, 8])
def test_agrees_with_a_loop_over_elements(stage, num_ranks):
    members = [(torch.zeros(shape, device="meta"), layout.at(shape)) for shape, layout in LAYOUTS]
    elements, numbers, num_cut = by_element(num_ranks, stage)
    found = shares(members, num_ranks, stage)
    assert found.elements.tolist() == elements
    assert found.num_cut == num_cut
    assert num_cut or (num_ranks, stage) == (2, 2)  # whose one bound lies between two neurons
    # A range shorter than a row may hold nothing of a neuron that reaches across it.
    assert all(a >= b for a, b in zip(found.numbers.tolist(), numbers, strict=True))
    if num_ranks == 2:
        assert found.numbers.tolist() == numbers


def test_a_plan_counts_five_sums_per_cut_neuron():
    model = nn.Sequential(nn.Linear(6, 7, bias=False), nn.Linear(7, 5, bias=False))
    planned = plan(model, Ranks(zero=4), optimizers=["nero", "nero-rows", "adamw", "muon"])
    # One group of 77 weights, padded to 80: ranges begin at 20, 40 and 60. Rows of 6 begin at multiples of
    # six up to 36, then rows of 7 at 42, 49, 56, 63 and 70. So 20, 40 and 60 cut one row each.
    cost = planned.costs["nero"]
    assert (cost.num_collectives, cost.communicated_bytes) == (1, 3 * 40)
    assert cost.collectives == {"all_reduce": 1}
    # The first rank has rows 0 to 3, the second 3 to 6, the third 6 to 9, the fourth 9 to 11: four at most.
    assert cost.state_bytes == 4 * 4 + 16
    assert planned.costs["adamw"].state_bytes == 8 * 20
    assert planned.costs["adamw"].num_collectives == 0
    # Output layers have a group of their own: 42 weights padded to 48, and 35 padded to 40. 12, 24 and 36
    # begin rows of six; 10, 20 and 30 cut rows of seven.
    assert planned.costs["nero-rows"].communicated_bytes == 3 * 40
    assert "ZeRO flattens them" in planned.left_out["muon"]
    assert planned.parameter_bytes == 4 * 20


def test_stage_3_cuts_parameters_one_by_one():
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.Linear(7, 5, bias=False))
    # 48 weights in ranges of 12, which begin rows; 35 in ranges of 9, which cut rows of seven at 9, 18, 27.
    planned = plan(model, Ranks(zero3=4), optimizers=["nero"])
    assert planned.costs["nero"].communicated_bytes == 3 * 40


def test_sub_groups_of_stage_3_are_steps_of_their_own(monkeypatch):
    monkeypatch.setattr(zero, "_SUB_GROUP", 10)
    model = nn.Sequential(*(nn.Linear(5, 7, bias=False) for _ in range(3)))
    planned = plan(
        model, Ranks(zero3=4), optimizers=["nero"]
    )  # 9 of 35 weights per rank and matrix
    assert planned.costs["nero"].num_collectives == 2


def test_muon_of_deepspeed(monkeypatch):
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(4, 3))
    hidden = [48, 32]  # the last layer is the output
    assert [p.numel() for p in nero.layout.hidden_matrices(model)] == hidden
    rest = flatten([8, 4, 12, 3], 2, stage=2)[0].size
    cost = deepspeed_muon_cost(model, 2, stage=2)
    # 80 weights in ranges of 40: the first matrix is cut, and both ranks keep all of its momentum.
    assert cost.state_bytes == 4 * (48 + 32) + 8 * rest
    assert cost.num_bytes == 0
    assert "1 matrices split across ranks (192 B)" in cost.note
    cost = deepspeed_muon_cost(model, 2, stage=3)
    rest = sum(r.size for r in flatten([8, 4, 12, 3], 2, stage=3))
    assert cost.state_bytes == 4 * (24 + 16) + 8 * rest
    # Gradients and momentum in, then one round of two buffers of 48 for each of both.
    assert cost.num_bytes == 4 * (2 * 80 + 2 * 2 * 48)
    assert cost.collectives == {"all_gather_into_tensor": 2, "all_gather": 2}
    monkeypatch.setattr(zero, "_BUCKET", 50)
    assert deepspeed_muon_cost(model, 2, 3).collectives == {
        "all_gather_into_tensor": 4,
        "all_gather": 4,
    }


def test_the_mesh_and_the_table():
    assert parse_ranks("zero=1024") == Ranks(zero=1024)
    assert str(Ranks(zero3=8)) == "zero3=8"
    with pytest.raises(CommandError, match="mixes ZeRO with another axis"):
        parse_ranks("zero=4,tp=2")
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(4, 3))
    shown = table(plan(model, Ranks(zero=2)))
    assert "on 2 ranks (zero=2)" in shown
    assert "deepspeed-muon: in the backward pass, the gradients of 1 matrices" in shown
    assert "deepspeed-muon" not in table(
        plan(model, Ranks(fsdp=2), optimizers=["deepspeed-muon", "nero"])
    )
