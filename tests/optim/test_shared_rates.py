"""Learning rates that are tensors: groups follow the owner of the tensor, and nobody else."""

import pytest
import torch
from torch import nn

from nero import Nero


def rates(optimizer):
    return [pytest.approx(float(group["lr"])) for group in optimizer.param_groups]


def step(optimizer):
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.ones_like(param)
    optimizer.step()


@pytest.mark.parametrize("is_refused", [False, True])
def test_what_the_owner_wrote_before_a_group_was_added_counts(is_refused):
    lr = torch.tensor(0.01)
    optimizer = Nero(nn.Linear(4, 3), lr=lr)
    step(optimizer)
    lr.fill_(0.02)
    group = {"params": [*nn.Linear(3, 2).parameters()]}
    if is_refused:
        with pytest.raises(ValueError, match="direction"):
            optimizer.add_param_group({**group, "direction": "nope"})
    else:
        optimizer.add_param_group(group)
    step(optimizer)
    assert rates(optimizer) == [0.02] * len(optimizer.param_groups)


def test_after_loading_a_new_group_has_a_rate_of_its_own():
    optimizer = Nero(nn.Linear(4, 3), lr=torch.tensor(0.01))
    step(optimizer)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.add_param_group({"params": [*nn.Linear(3, 2).parameters()]})
    wanted = [0.1 * (i + 1) for i in range(len(optimizer.param_groups))]
    for group, value in zip(optimizer.param_groups, wanted, strict=True):
        group["lr"].fill_(value)
    step(optimizer)
    assert rates(optimizer) == wanted


def test_a_checkpoint_without_names_loads_twice():
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    saved = torch.optim.Optimizer.state_dict(Nero([*model.parameters()]))
    one = {**saved["param_groups"][0], "params": [0, 1, 2, 3]}
    saved = {
        **saved,
        "param_groups": [one],
        "state": Nero([*model.parameters()]).state_dict()["state"],
    }
    optimizer = Nero(model.parameters())
    assert len(optimizer.param_groups) > 1
    for _ in range(2):
        optimizer.load_state_dict(saved)
