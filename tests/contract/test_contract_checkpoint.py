"""State dicts: what is in them, and that training resumed from one is training never interrupted."""

import copy
from typing import Any

import pytest
import torch
from optimizer_table import TABLE, Claim, Entry, each_entry, each_variant_and_dtype
from tiny_problem import (
    TinyNet,
    assert_moves,
    assert_same,
    frozen_copy,
    has_same_bits,
    through_disk,
    train,
    weights,
)
from torch import Tensor
from torch.optim import Optimizer

import nero

BEFORE, AFTER = range(3), range(3, 6)

PARAMS = {
    "plain": lambda model: list(model.parameters()),
    "named": lambda model: list(model.named_parameters()),
    "groups": nero.param_groups,
}


def interrupted(
    entry: Entry, *, params: str = "groups", dtype: torch.dtype = torch.float32, **kwargs: Any
) -> tuple[TinyNet, Optimizer, dict[str, Any]]:
    """Train half-way; return the model, its optimizer, and a checkpoint of both."""
    model = TinyNet(dtype=dtype)
    optimizer = entry.build(PARAMS[params](model), **kwargs)
    train(model, optimizer, BEFORE)
    checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    return model, optimizer, through_disk(checkpoint)


def resumed(
    entry: Entry,
    checkpoint: dict[str, Any],
    *,
    params: str = "groups",
    dtype: torch.dtype = torch.float32,
    weights_first: bool = False,
    **kwargs: Any,
) -> tuple[TinyNet, Optimizer]:
    """Resume in a process that knows nothing: other weights, and no state worth keeping."""
    model = TinyNet(seed=1, dtype=dtype)
    if weights_first:
        model.load_state_dict(checkpoint["model"])
    optimizer = entry.build(PARAMS[params](model), **kwargs)
    model.load_state_dict(checkpoint["model"])
    # a copy, because torch's own load_state_dict trains on with the tensors it is given
    optimizer.load_state_dict(copy.deepcopy(checkpoint["optimizer"]))
    return model, optimizer


def state_tensors(optimizer: Optimizer) -> list[tuple[str, Tensor]]:
    return [
        (key, value)
        for state in optimizer.state.values()
        for key, value in state.items()
        if isinstance(value, Tensor)
    ]


@each_variant_and_dtype
def test_resumes_bit_for_bit(entry: Entry, kwargs: dict[str, Any], dtype: torch.dtype):
    kwargs = {**kwargs, "dtype": dtype}
    model, optimizer, checkpoint = interrupted(entry, **kwargs)
    expected = train(model, optimizer, AFTER)
    assert_moves(expected)
    for weights_first in (True, False):
        again = resumed(entry, checkpoint, weights_first=weights_first, **kwargs)
        assert_same(expected, train(*again, AFTER))
        assert_same(optimizer.state_dict()["state"], again[1].state_dict()["state"])


@each_entry
@pytest.mark.parametrize(
    ("params", "dtype"),
    [("plain", torch.float32), ("named", torch.bfloat16), ("groups", torch.float64)],
    ids=str,
)
def test_resumes_from_every_kind_of_params(entry: Entry, params: str, dtype: torch.dtype):
    model, optimizer, checkpoint = interrupted(entry, params=params, dtype=dtype)
    again = resumed(entry, checkpoint, params=params, dtype=dtype)
    assert_same(train(model, optimizer, AFTER), train(*again, AFTER))


@each_entry
@pytest.mark.parametrize(("saved", "loading"), [("plain", "named"), ("named", "plain")])
def test_names_decide_nothing(entry: Entry, saved: str, loading: str):
    model, optimizer, checkpoint = interrupted(entry, params=saved)
    again = resumed(entry, checkpoint, params=loading)
    assert_same(train(model, optimizer, AFTER), train(*again, AFTER))
    # torch's rule: saved names win, and names that the checkpoint lacks are kept.
    assert again[1].param_groups[0]["param_names"] == [n for n, _ in model.named_parameters()]


@each_entry
def test_state_dict_survives_a_round_trip(entry: Entry):
    _, optimizer, checkpoint = interrupted(entry)
    _, again = resumed(entry, checkpoint)
    expected, actual = (through_disk(o.state_dict()) for o in (optimizer, again))
    assert_same(expected["state"], actual["state"])
    # Options have no order, and a load may gain or lose none.
    for before, after in zip(expected["param_groups"], actual["param_groups"], strict=True):
        assert_same(dict(sorted(before.items())), dict(sorted(after.items())))


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("entry", [e for e in TABLE if "constraint" in e.group_options], ids=str)
def test_the_constraint_of_a_group_survives_the_disk(entry: Entry, weights_only: bool):
    groups = nero.param_groups(
        TinyNet(), overrides=[("mix.weight", {"constraint": nero.NORM_ONLY})]
    )
    optimizer = entry.build(groups)
    optimizer.load_state_dict(through_disk(optimizer.state_dict(), weights_only=weights_only))
    constraints = [group.get("constraint") for group in optimizer.param_groups]
    assert nero.NORM_ONLY in [nero.functional.as_constraint(c) for c in constraints if c]


@each_entry
def test_a_tensor_lr_survives_the_disk(entry: Entry):
    model, optimizer, checkpoint = interrupted(entry, lr=torch.tensor(entry.lr))
    again = resumed(entry, checkpoint, lr=torch.tensor(1.0))
    assert_same(train(model, optimizer, AFTER), train(*again, AFTER))
    assert again[1].param_groups[0]["lr"] is not checkpoint["optimizer"]["param_groups"][0]["lr"]


@pytest.mark.parametrize(
    ("entry", "option"),
    [(entry, option) for entry in TABLE for option in entry.newer_options],
    ids=str,
)
def test_an_older_checkpoint_without_an_option_keeps_the_present_one(entry: Entry, option: str):
    model, optimizer, checkpoint = interrupted(entry)
    for group in checkpoint["optimizer"]["param_groups"]:
        group.pop(option, None)  # torch's SGD and AdamW have no layout options
    again = resumed(entry, checkpoint)
    assert_same(train(model, optimizer, AFTER), train(*again, AFTER))


@pytest.mark.parametrize("entry", [e for e in TABLE if e.former_state], ids=str)
def test_state_that_older_checkpoints_carried_does_no_harm(entry: Entry):
    model, optimizer, checkpoint = interrupted(entry)
    for state in checkpoint["optimizer"]["state"].values():
        for key in entry.former_state:
            assert key not in state
            state[key] = torch.tensor(3)
    again = resumed(entry, checkpoint)
    assert_same(train(model, optimizer, AFTER), train(*again, AFTER))


@each_entry
def test_a_counter_may_be_a_plain_number(entry: Entry):
    # torch's optimizers once saved it so, and still load it; tools that convert checkpoints write it.
    model, optimizer, checkpoint = interrupted(entry)
    for state in checkpoint["optimizer"]["state"].values():
        if "step" in state:
            state["step"] = state["step"].item()
    again = resumed(entry, checkpoint)
    assert_same(train(model, optimizer, AFTER), train(*again, AFTER))


@each_entry
def test_an_empty_state_is_a_fresh_start(entry: Entry):
    model, optimizer, _ = interrupted(entry)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": {}})
    fresh_model = copy.deepcopy(model)
    fresh = entry.build(fresh_model)
    assert_same(train(fresh_model, fresh, AFTER), train(model, optimizer, AFTER))


@each_entry
def test_loading_reads_its_argument_only(entry: Entry):
    model, optimizer, checkpoint = interrupted(entry)
    saved = checkpoint["optimizer"]
    before = copy.deepcopy(saved)
    for _ in range(2):
        optimizer.load_state_dict(saved)
        assert_same(before, saved)
    before_weights = weights(model.parameters())
    optimizer.load_state_dict(saved)
    assert_same(before_weights, weights(model.parameters()), "loading projected")
    train(model, optimizer, AFTER)
    if entry.holds(Claim.LOAD_COPIES):
        assert_same(before, saved)
    else:
        assert not has_same_bits(_first_average(before), _first_average(saved))


def _first_average(state_dict: dict[str, Any]) -> Tensor:
    return next(v for k, v in state_dict["state"][0].items() if k != "step")


@each_entry
def test_state_keeps_its_precision(entry: Entry):
    model, optimizer, checkpoint = interrupted(entry)
    full = dict(state_tensors(optimizer))
    model = TinyNet(dtype=torch.bfloat16)
    narrow = entry.build(model)
    train(model, narrow, BEFORE)
    narrow_dtypes = {key: tensor.dtype for key, tensor in state_tensors(narrow)}
    narrow.load_state_dict(checkpoint["optimizer"])
    if entry.holds(Claim.STATE_DTYPE):
        assert narrow_dtypes == {key: tensor.dtype for key, tensor in full.items()}
        assert_same(through_disk(optimizer.state_dict()["state"]), narrow.state_dict()["state"])
    else:
        assert torch.bfloat16 in narrow_dtypes.values()
        assert torch.bfloat16 in {tensor.dtype for _, tensor in state_tensors(narrow)}


@each_entry
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_load_then_move(entry: Entry, dtype: torch.dtype):
    _, _, checkpoint = interrupted(entry)
    model, optimizer = resumed(entry, checkpoint)
    before = frozen_copy(optimizer)["state"]
    model.to(dtype)
    assert_same(before, optimizer.state_dict()["state"])
    if entry.holds(Claim.STEPS_AFTER_MOVE):
        assert_moves(train(model, optimizer, AFTER))
        assert all(t.dtype != torch.bfloat16 for _, t in state_tensors(optimizer))
    else:
        with pytest.raises(RuntimeError, match="dtype"):
            train(model, optimizer, AFTER)


def _fewer_groups(saved: dict[str, Any]) -> None:
    saved["param_groups"].pop()


def _fewer_params(saved: dict[str, Any]) -> None:
    saved["param_groups"][0]["params"].pop()


def _other_shapes(saved: dict[str, Any]) -> None:
    # The last parameter, so that a load which does not look ahead has changed all others.
    last = saved["state"][max(saved["state"])]
    last.update({k: v.new_zeros(5, 5) for k, v in last.items() if v.ndim > 0})


@each_entry
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_fewer_groups, "different number of parameter groups"),
        (_fewer_params, "doesn't match the size of optimizer's group"),
        (_other_shapes, "shape"),
    ],
)
def test_a_load_that_fails_changes_nothing(entry: Entry, damage: Any, message: str):
    model, optimizer, checkpoint = interrupted(entry)
    train(model, optimizer, AFTER)
    before, saved = frozen_copy(optimizer), checkpoint["optimizer"]
    intact = copy.deepcopy(saved)
    damage(saved)
    if damage is _other_shapes and not entry.holds(Claim.LOAD_CHECKS_SHAPES):
        optimizer.load_state_dict(saved)
        return
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(saved)
    assert_same(before, optimizer.state_dict())
    optimizer.load_state_dict(intact)


@each_entry
def test_state_dict_hooks(entry: Entry):
    model, optimizer, _ = interrupted(entry)
    calls = []

    def count(name: str):
        return lambda *_: calls.append(name)

    def rename(_: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        calls.append("after saving")
        return {**state_dict, "note": "kept"}

    def halve_lr(_: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        calls.append("before loading")
        groups = [{**g, "lr": g["lr"] / 2} for g in state_dict["param_groups"]]
        return {**state_dict, "param_groups": groups}

    handles = [
        optimizer.register_state_dict_pre_hook(count("before saving")),
        optimizer.register_state_dict_post_hook(rename),
        optimizer.register_load_state_dict_pre_hook(halve_lr),
        optimizer.register_load_state_dict_post_hook(count("after loading")),
    ]
    saved = copy.deepcopy(optimizer.state_dict())
    assert saved["note"] == "kept"
    optimizer.load_state_dict(saved)
    assert calls == ["before saving", "after saving", "before loading", "after loading"]
    assert {group["lr"] for group in optimizer.param_groups} == {entry.lr / 2}
    for handle in handles:
        handle.remove()
    optimizer.load_state_dict(optimizer.state_dict())
    assert len(calls) == 4
    assert_moves(train(model, optimizer, AFTER))


@each_entry
def test_state_is_tensors_in_the_order_of_the_parameters(entry: Entry):
    model = TinyNet()
    optimizer = entry.build(model)
    at_first = _order(optimizer)
    # The last parameter alone, then all: an order of first use would come out reversed.
    last = optimizer.param_groups[-1]["params"][-1]
    last.grad = torch.ones_like(last)
    optimizer.step()
    in_between = _order(optimizer)
    train(model, optimizer, BEFORE)
    for _, state in sorted(optimizer.state_dict()["state"].items()):
        assert all(isinstance(value, Tensor) for value in state.values())
        assert not any(value.requires_grad for value in state.values())
    if entry.holds(Claim.EAGER_STATE):
        num_params = len(list(model.parameters()))
        assert [index for index, _ in at_first] == list(range(num_params))
        assert at_first == in_between == _order(optimizer)
    else:
        assert at_first == []
        assert len(in_between) == 1


def _order(optimizer: Optimizer) -> list[tuple[int, list[str]]]:
    return [(index, [*state]) for index, state in optimizer.state_dict()["state"].items()]


@each_entry
def test_saving_changes_no_weight(entry: Entry):
    model, optimizer, _ = interrupted(entry)
    late = torch.nn.Parameter(torch.randn(4, 3), requires_grad=False)
    optimizer.add_param_group({"params": [("late", late)]})
    late.requires_grad_(True)  # thawed, and not yet seen by a step
    before = weights([*model.parameters(), late])
    optimizer.state_dict()
    assert_same(before, weights([*model.parameters(), late]))


@each_entry
def test_state_that_belongs_to_no_parameter_is_kept(entry: Entry):
    # torch saves and loads whatever else a user keeps in `state`.
    model, optimizer, _ = interrupted(entry)
    optimizer.state["schedule"] = {"phase": 3}
    optimizer.load_state_dict(through_disk(optimizer.state_dict()))
    train(model, optimizer, AFTER)
    assert optimizer.state_dict()["state"]["schedule"] == {"phase": 3}


@pytest.mark.parametrize("entry", [e for e in TABLE if e.wrapper], ids=str)
def test_a_wrapped_optimizer_writes_the_checkpoints_of_the_bare_one(entry: Entry):
    model, wrapped, checkpoint = interrupted(entry)
    bare = entry.optim_cls(nero.param_groups(model), lr=1.0)
    bare.load_state_dict(checkpoint["optimizer"])
    assert_same(wrapped.state_dict()["state"], bare.state_dict()["state"])
    wrapped.load_state_dict(bare.state_dict())
