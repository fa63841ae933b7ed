"""Are bytes counted right? Expected figures come from shapes alone, never from our own counter."""

import torch
import torch.distributed as dist
from torch import nn

from nero_tools.plan import simulate
from nero_tools.plan.mesh import Ranks
from nero_tools.plan.simulate import CountTraffic, fake_ranks, plan


def test_a_collective_counts_with_the_larger_of_its_input_and_its_output():
    with fake_ranks(4), CountTraffic() as traffic:
        dist.all_reduce(torch.zeros(10, dtype=torch.float64))
        assert traffic.num_bytes == 10 * 8
        dist.all_gather_into_tensor(torch.zeros(4 * 6), torch.zeros(6))
        assert traffic.num_bytes == 10 * 8 + 4 * 6 * 4
        dist.reduce_scatter_tensor(torch.zeros(3), torch.zeros(4 * 3))
        assert traffic.num_bytes == 10 * 8 + 4 * 6 * 4 + 4 * 3 * 4
        torch.zeros(1000) + 1  # no collective
    assert traffic.num_bytes == 10 * 8 + 4 * 6 * 4 + 4 * 3 * 4
    assert sum(traffic.calls.values()) == 3


class Gather(torch.optim.Optimizer):
    """Gathers every parameter and keeps what it gathered."""

    def __init__(self, params):
        super().__init__(params, {})

    def step(self, closure=None):
        for param in self.param_groups[0]["params"]:
            self.state[param] = {"all": [param.full_tensor()]}


def test_bytes_of_a_step_follow_from_the_shapes(monkeypatch):
    gather = {"gather": lambda model: [Gather(model.parameters())]}
    monkeypatch.setattr(simulate, "OPTIMIZERS", {**simulate.OPTIMIZERS, **gather})
    # 8 x 12 and 20 x 8 weights and 20 biases in float32, cut among 4 ranks along dim 0.
    model = nn.Sequential(nn.Linear(12, 8, bias=False), nn.Linear(8, 20))
    planned = plan(model, Ranks(fsdp=4), optimizers=["gather", "adamw", "nero"])
    numel = 8 * 12 + 20 * 8 + 20
    assert planned.num_parameters == numel
    assert planned.parameter_bytes == 4 * numel // 4
    cost = planned.costs["gather"]
    assert cost.num_collectives == 3
    assert cost.communicated_bytes == cost.state_bytes == 4 * numel
    # Two averages of what is on the rank, and a float32 count of steps per parameter.
    assert planned.costs["adamw"].state_bytes == 2 * 4 * numel // 4 + 3 * 4
    assert planned.costs["adamw"].communicated_bytes == 0
    # Neurons lie whole on their ranks: one number per row or bias of the rank, and some counters.
    numbers = 4 * (8 // 4 + 20 // 4 + 20 // 4)
    assert numbers <= planned.costs["nero"].state_bytes <= numbers + 3 * 20


def test_replicas_hold_everything():
    model = nn.Linear(12, 8, bias=False)
    planned = plan(model, Ranks(replicate=4), optimizers=["adamw"])
    assert planned.parameter_bytes == 4 * 8 * 12
    assert planned.costs["adamw"].state_bytes == 2 * 4 * 8 * 12 + 4
