"""Constraints for any torch optimizer."""

import copy

import pytest
import torch
from torch import nn

from nero import (
    BALANCED,
    MEAN_ONLY,
    NORM_ONLY,
    UNCONSTRAINED,
    Balanced,
    param_groups,
)
from nero.baselines import Lamb, Madam
from nero.functional import is_balanced


def train(model, optimizer, steps=10):
    torch.manual_seed(1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.LayerNorm(5), nn.Linear(5, 3))


@pytest.mark.parametrize("constraint", [BALANCED, NORM_ONLY, MEAN_ONLY], ids=str)
def test_every_step_ends_on_the_constraint(constraint):
    net = model()
    optimizer = Balanced(torch.optim.AdamW(param_groups(net), lr=0.1), constraint)
    for _ in range(5):
        for layer in (net[0], net[3]):
            assert is_balanced(layer.weight, fan_in_dims=(1,), constraint=constraint).all()
        train(net, optimizer, 1)


def test_without_constraint_it_is_the_wrapped_optimizer():
    wrapped, plain = model(), model()
    train(wrapped, Balanced(torch.optim.SGD(wrapped.parameters(), lr=0.1), UNCONSTRAINED))
    train(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    for p, q in zip(wrapped.parameters(), plain.parameters(), strict=True):
        assert torch.equal(p, q)


def test_initial_norms_are_kept():
    net = model()
    before = net[0].weight.detach().clone()
    optimizer = Balanced(torch.optim.SGD(param_groups(net), lr=0.1), "initial")
    assert torch.equal(net[0].weight, before)
    train(net, optimizer)
    torch.testing.assert_close(net[0].weight.norm(dim=1), before.norm(dim=1))
    assert not torch.allclose(net[0].weight, before)


def test_initial_norms_do_not_drift_in_bfloat16():
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(8, 64, dtype=torch.bfloat16))
    norms = weight.detach().float().norm(dim=1)
    optimizer = Balanced(torch.optim.SGD([weight], lr=0.01), "initial")
    for _ in range(500):
        weight.grad = torch.randn_like(weight)
        optimizer.step()
    # A row of bfloat16 numbers has its norm to within eps = 2^-7, however many steps it took.
    torch.testing.assert_close(weight.detach().float().norm(dim=1), norms, rtol=2**-7, atol=0)


def test_wrapping_twice_is_an_error():
    inner = torch.optim.SGD(model().parameters(), lr=0.1)
    Balanced(inner)
    with pytest.raises(ValueError, match="wrapped by another Balanced"):
        Balanced(inner, "none")


def test_flattened_parameters_are_refused():
    param = nn.Parameter(torch.randn(100))
    param._fsdp_flattened = True
    with pytest.raises(RuntimeError, match="FSDP2"):
        Balanced(torch.optim.SGD([("flat", param)], lr=0.1))


def test_a_zero_neuron_keeps_the_norm_of_its_first_step():
    layer = nn.Linear(6, 2, bias=False)
    nn.init.zeros_(layer.weight)
    optimizer = Balanced(torch.optim.SGD(layer.parameters(), lr=0.1), "initial")
    layer.weight.grad = torch.ones(2, 6)
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach(), torch.full((2, 6), -0.1))


def test_layouts_come_from_param_groups():
    layer = nn.ConvTranspose2d(4, 6, 3, groups=2)
    Balanced(torch.optim.SGD(param_groups(layer), lr=0.1))
    rows = layer.weight.detach().reshape(2, 2, 3, 3, 3).permute(0, 2, 1, 3, 4).reshape(6, -1)
    assert is_balanced(rows, fan_in_dims=(1,)).all()


def test_a_group_may_have_its_own_constraint():
    net = model()
    groups = param_groups(net, overrides=[("3.weight", {"constraint": "none"})])
    before = net[3].weight.detach().clone()
    Balanced(torch.optim.SGD(groups, lr=0.1))
    assert torch.equal(net[3].weight, before)
    assert is_balanced(net[0].weight, fan_in_dims=(1,)).all()


def test_stepping_the_wrapped_optimizer_projects_too():
    net = model()
    inner = torch.optim.SGD(param_groups(net), lr=0.1)
    Balanced(inner)
    train(net, inner)
    assert is_balanced(net[0].weight, fan_in_dims=(1,)).all()


def test_checkpoints_are_those_of_the_wrapped_optimizer():
    net = model()
    optimizer = Balanced(Lamb(param_groups(net)))
    train(net, optimizer)
    Lamb(param_groups(model())).load_state_dict(optimizer.state_dict())


def test_madam_is_bound_by_the_weights_that_it_trains():
    layer = nn.Linear(100, 50, bias=False)
    nn.init.normal_(layer.weight, std=0.01)
    optimizer = Balanced(Madam(layer))
    scale = optimizer.state[layer.weight]["scale"]
    torch.testing.assert_close(scale, layer.weight.detach().square().mean().sqrt())


def test_an_optimizer_that_has_stepped_keeps_its_state_when_wrapped():
    net, again = model(), model()
    stepped = Lamb(param_groups(net))
    train(net, stepped)
    resumed = Lamb(param_groups(again))
    resumed.load_state_dict(stepped.state_dict())
    before = copy.deepcopy(stepped.state_dict()["state"])
    for inner in (stepped, resumed):
        wrapped = Balanced(inner)
        torch.testing.assert_close(wrapped.state_dict()["state"], before, rtol=0, atol=0)
    assert all(state["step"] == 10 for state in before.values())


def test_optimizers_may_be_given_the_same_groups():
    groups = param_groups(model())
    madam, lamb = Madam(groups), Lamb(groups)
    assert madam.param_groups[0]["lr"] == 0.01
    assert lamb.param_groups[0]["lr"] == 0.001
    assert "lr" not in groups[0]


def test_checkpoint_of_the_wrapped_optimizer_alone_leaves_layout_and_constraint():
    layer = nn.ConvTranspose2d(4, 6, 3, bias=False)
    groups = param_groups(layer, overrides=[("weight", {"constraint": "norm"})])
    optimizer = Balanced(torch.optim.AdamW(groups, weight_decay=0.0))
    alone = torch.optim.AdamW([nn.Parameter(layer.weight.detach().clone())], lr=0.5)
    optimizer.load_state_dict(alone.state_dict())
    (group,) = optimizer.param_groups
    assert group["lr"] == 0.5
    assert (group["neuron_dims"], group["constraint"]) == ((1,), "norm")
