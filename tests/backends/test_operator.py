"""The compiled operator: what it is given arrives, for every parameter by itself."""

import copy

import pytest
import torch
from torch import nn

from nero import Nero
from nero.backends import cpu, operator

pytestmark = pytest.mark.skipif(cpu.missing() is not None, reason=str(cpu.missing()))


def updates_of(optimizer):
    seen = []
    optimizer.rule.step = lambda updates, _: seen.extend(updates)
    optimizer.step()
    del optimizer.rule.step
    return seen


@pytest.mark.parametrize("rates", [(0.01, 0.3), (0.3, 0.0), (torch.tensor(0.01), 0.2)])
def test_every_parameter_has_its_own_rate(rates):
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(6, 4), nn.Linear(4, 3)])
    other = copy.deepcopy(layers)
    for p, q in zip(layers.parameters(), other.parameters(), strict=True):
        p.grad = torch.randn_like(p)
        q.grad = p.grad.clone()
    groups = [
        [
            {"params": [*layer.parameters()], "lr": lr}
            for layer, lr in zip(model, rates, strict=True)
        ]
        for model in (layers, other)
    ]
    Nero(groups[0]).step()
    operator.step_(updates_of(Nero(groups[1])), "cpu")
    for p, q in zip(layers.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)


def test_a_rate_lies_on_the_cpu_whatever_the_default_device():
    model = nn.Linear(6, 4)
    for param in model.parameters():
        param.grad = torch.randn_like(param)
    updates, before = updates_of(Nero(model)), model.weight.detach().clone()
    with torch.device("meta"):
        operator.step_(updates, "cpu")
    assert not torch.equal(model.weight, before)


def test_its_schema_says_what_it_writes():
    schema = torch.ops.nero.step.default._schema
    written = {a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write}
    assert written == {"weights", "written"}
    model = nn.Linear(6, 4)
    for param in model.parameters():
        param.grad = torch.randn_like(param)
    for update in updates_of(Nero(model, constraint="initial")):
        before = {key: tensor.clone() for key, tensor in update.state.items()}
        operator.step_([update], "cpu")
        changed = {key for key in before if not torch.equal(before[key], update.state[key])}
        assert changed <= set(operator._WRITTEN)
