"""Param groups: options of their own, late arrivals, unknown keys, and failures that leave no trace."""

from typing import Any

import pytest
import torch
from optimizer_table import Claim, Entry, each_entry, each_group_option
from tiny_problem import (
    TinyNet,
    assert_moves,
    assert_same,
    frozen_copy,
    loss_of,
    through_disk,
    train,
    weights,
)
from torch import Tensor, nn
from torch.optim import Optimizer

import nero


def halves(model: nn.Module) -> list[list[dict[str, Any]]]:
    """Cut the groups of ``model`` into two lists: the last layers, and the first with the LayerNorm."""
    first = ("embed", "norm", "mix")
    parts: list[list[dict[str, Any]]] = [[], []]
    for group in nero.param_groups(model):
        for part, is_first in zip(parts, (False, True), strict=True):
            members = [m for m in group["params"] if m[0].startswith(first) == is_first]
            if members:
                part.append({**group, "params": members})
    return parts


def train_with(model: nn.Module, optimizers: list[Optimizer], steps: range) -> list[list[Tensor]]:
    trajectory = []
    for step in steps:
        model.zero_grad()
        loss_of(model, step).backward()
        for optimizer in optimizers:
            optimizer.step()
        trajectory.append(weights(model.parameters()))
    return trajectory


@each_group_option
def test_a_group_with_an_option_is_an_optimizer_with_it(entry: Entry, option: str):
    value = entry.group_options[option]
    together, apart = TinyNet(), TinyNet()
    plain, special = halves(together)
    one = entry.build([*plain, *({**group, option: value} for group in special)])
    plain, special = halves(apart)
    two = [entry.build(plain), entry.build(special, **{option: value})]
    expected = train_with(apart, two, range(4))
    assert_same(expected, train_with(together, [one], range(4)))

    untouched = TinyNet()
    default = train(untouched, entry.build(untouched), range(4))
    assert not all(torch.equal(a, b) for a, b in zip(default[-1], expected[-1], strict=True)), (
        f"{option}={value} does nothing"
    )


@each_group_option
@pytest.mark.filterwarnings("ignore:momentum was switched on")
def test_an_option_can_be_changed_while_training(entry: Entry, option: str):
    value = entry.group_options[option]
    model, other = TinyNet(), TinyNet()
    optimizer = entry.build(model)
    reference = entry.build(other)
    train(model, optimizer, range(2))
    train(other, reference, range(2))
    for group in optimizer.param_groups:
        group[option] = value
    changed = train(model, optimizer, range(2, 5))
    unchanged = train(other, reference, range(2, 5))
    is_same = all(torch.equal(a, b) for a, b in zip(changed[-1], unchanged[-1], strict=True))
    assert is_same == (option in entry.fixed_options)

    again = TinyNet(seed=1)
    resumed = entry.build(again)
    resumed.load_state_dict(through_disk(optimizer.state_dict()))
    again.load_state_dict(model.state_dict())
    assert_same(train(model, optimizer, range(5, 8)), train(again, resumed, range(5, 8)))


@each_entry
def test_groups_have_their_own_lr(entry: Entry):
    model = TinyNet()
    moving, pausing = halves(model)
    still = [param for group in pausing for _, param in group["params"]]
    optimizer = entry.build([*({**group, "lr": 0.0} for group in pausing), *moving])
    before = weights(still)
    trajectory = train(model, optimizer, range(4))
    assert_same(before, weights(still))
    assert not torch.equal(trajectory[0][-1], trajectory[-1][-1])


@each_entry
@pytest.mark.parametrize("is_tensor", [True, False])
def test_a_late_group_joins_as_if_alone(entry: Entry, is_tensor: bool):
    def lr() -> Any:
        return torch.tensor(entry.lr) if is_tensor else entry.lr

    together, apart = TinyNet(), TinyNet()
    early, late = halves(together)
    one = entry.build(early, lr=lr())
    train_with(together, [one], range(3))
    for group in late:
        one.add_param_group(group)

    early, late = halves(apart)
    two = [entry.build(early, lr=lr())]
    train_with(apart, two, range(3))
    two.append(entry.build(late, lr=lr()))
    expected = train_with(apart, two, range(3, 6))
    assert_same(expected, train_with(together, [one], range(3, 6)))

    # resumed by a script that adds all groups at once, as after an unfreezing epoch
    again = TinyNet(seed=1)
    early, late = halves(again)
    resumed = entry.build([*early, *late], lr=lr())
    resumed.load_state_dict(through_disk(one.state_dict()))
    again.load_state_dict(together.state_dict())
    assert_same(train_with(apart, two, range(6, 9)), train_with(again, [resumed], range(6, 9)))
    ids = [index for group in one.state_dict()["param_groups"] for index in group["params"]]
    assert ids == list(range(len(list(together.parameters()))))


def _known_parameter(param: nn.Parameter) -> tuple[dict[str, Any], type[Exception], str]:
    return {"params": [param]}, ValueError, "appear in more than one parameter group"


def _not_a_tensor(_: nn.Parameter) -> tuple[dict[str, Any], type[Exception], str]:
    return {"params": ["weight"]}, TypeError, "can only optimize Tensors"


def _complex_parameter(_: nn.Parameter) -> tuple[dict[str, Any], type[Exception], str]:
    # The first is fine, so that a check made one by one has begun its work already.
    good = nn.Parameter(torch.arange(6.0).reshape(2, 3))
    bad = nn.Parameter(torch.randn(2, 3, dtype=torch.complex64))
    return {"params": [good, bad]}, TypeError, "only real floating-point parameters"


@each_entry
@pytest.mark.parametrize("make", [_known_parameter, _not_a_tensor, _complex_parameter])
def test_a_group_that_is_refused_leaves_no_trace(entry: Entry, make: Any):
    model = TinyNet()
    optimizer = entry.build(list(model.parameters()))
    train(model, optimizer, range(2))
    before = frozen_copy(optimizer)
    group, error_type, message = make(model.head.weight)
    members = list(group["params"])
    with pytest.raises(error_type, match=message):
        optimizer.add_param_group(group)
    assert_same(before, optimizer.state_dict())
    assert len(optimizer.param_groups) == 1
    if members[0] is not model.head.weight and isinstance(members[0], Tensor):
        assert torch.equal(members[0], torch.arange(6.0).reshape(2, 3)), "projected"
    assert_moves(train(model, optimizer, range(2, 6)))


@each_entry
def test_unknown_group_keys_are_kept(entry: Entry):
    model = TinyNet()
    optimizer = entry.build([{"params": list(model.parameters()), "tag": "mine", "depth": 3}])
    train(model, optimizer, range(2))
    optimizer.param_groups[0]["added_later"] = [1, 2]
    saved = through_disk(optimizer.state_dict())
    again = entry.build(list(TinyNet().parameters()))
    again.load_state_dict(saved)
    for each in optimizer, again:
        group = each.param_groups[0]
        assert (group["tag"], group["depth"], group["added_later"]) == ("mine", 3, [1, 2])

    del saved["param_groups"][0]["tag"]
    optimizer.load_state_dict(saved)
    assert ("tag" in optimizer.param_groups[0]) == entry.holds(Claim.LOAD_KEEPS_OPTIONS)
    train(model, optimizer, range(2, 4))


@each_entry
def test_names_stay_with_their_parameters(entry: Entry):
    model = TinyNet()
    optimizer = entry.build(model)
    expected = dict(model.named_parameters())
    found = {
        name: param
        for group in optimizer.param_groups
        for name, param in zip(group["param_names"], group["params"], strict=True)
    }
    assert found.keys() == expected.keys()
    assert all(found[name] is expected[name] for name in expected)
