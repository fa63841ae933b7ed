"""What the user chose: default < preset < role < output < given < override, wherever options go."""

import copy
import pickle
import re
import warnings

import pytest
import torch
from torch import nn

import nero
from nero import Nero, Sphere, describe
from nero.core.presets import PRESETS, chosen_names, resolve_options
from nero.core.spec import Hyper

OPTIONS = ("lr", *Hyper._fields, "weight_decay", "foreach", "fused")


def network():
    return nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 16), nn.Linear(16, 10))


def options_of(optimizer, name):
    group = next(g for g in optimizer.param_groups if name in g["param_names"])
    return {key: group[key] for key in ("lr", "momentum", "direction", "constraint")}


# --- the one function ---


LEVELS = [
    ({}, False, {}, {}, ("gradient", 0.0)),
    ({"preset": "polar"}, False, {}, {}, ("polar", 0.9)),
    ({"preset": "polar"}, True, {}, {}, ("gradient", 0.9)),
    ({"preset": "polar"}, True, {"direction": "polar"}, {}, ("polar", 0.9)),
    (
        {"preset": "polar"},
        True,
        {"direction": "polar"},
        {"direction": "gradient"},
        ("gradient", 0.9),
    ),
    ({"preset": "polar"}, False, {"momentum": 0.5}, {"momentum": None}, ("polar", 0.5)),
    ({"preset": "polar"}, False, {"momentum": 0.5}, {"momentum": 0.0}, ("polar", 0.0)),
]


@pytest.mark.parametrize(("preset", "is_output", "given", "own", "expected"), LEVELS)
def test_each_level_wins_over_those_below(preset, is_output, given, own, expected):
    name = preset.get("preset", "paper")
    found = resolve_options(name, given, role="neuron", is_output=is_output, own=own)
    assert (found["direction"], found["momentum"]) == expected


def test_a_role_wins_over_the_preset_and_an_argument_over_the_role():
    by_role = resolve_options("rows", {}, role="embedding")["constraint"]
    given = resolve_options("rows", {"constraint": Sphere(2.0)}, role="embedding")["constraint"]
    assert (by_role.radius, given.radius) == ("sqrt_dim", 2.0)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_option_of_an_update_is_resolved(preset):
    assert resolve_options(preset, {}).keys() == {"lr", *Hyper._fields}
    assert chosen_names(preset, resolve_options(preset, {})) == ()


# --- None ---


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("option", OPTIONS)
def test_none_means_not_chosen(option, preset):
    chosen, left_out = (Nero(network(), preset=preset, **o) for o in ({option: None}, {}))
    assert chosen.defaults == left_out.defaults
    for one, other in zip(chosen.param_groups, left_out.param_groups, strict=True):
        assert {**one, "params": 0} == {**other, "params": 0}
    model = network()
    assert describe(model, preset=preset, **{option: None}) == describe(model, preset=preset)


def test_none_in_a_group_means_not_chosen():
    layer = nn.Linear(8, 4)
    group = {"params": [layer.weight], "lr": None, "momentum": None, "constraint": None}
    (found,) = Nero([group], preset="rows").param_groups
    assert (found["lr"], found["momentum"], found["constraint"]) == (0.03, 0.9, Sphere())
    assert found["chosen"] == ()


@pytest.mark.parametrize("bad", [{"lr": -1.0}, {"lr": "0.1"}])
def test_describe_refuses_what_the_optimizer_refuses(bad):
    errors = []
    for call in (Nero, describe):
        with pytest.raises((TypeError, ValueError)) as caught:
            call(network(), preset="polar", **bad)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"preset": "rows"},
        {"preset": "polar"},
        {"preset": "polar", "direction": "polar"},
        {"preset": "rows", "constraint": "norm", "momentum": 0.0},
        {"preset": "polar", "overrides": {"role=output": {"direction": "polar"}}},
        {"preset": "rows", "overrides": {"role=embedding": {"constraint": "balanced"}}},
    ],
    ids=str,
)
def test_describe_shows_what_the_optimizer_does(given):
    model = network()
    optimizer = Nero(model, **given)
    for row in describe(model, **given).rows:
        group = next(g for g in optimizer.param_groups if row.name in g["param_names"])
        param = model.get_parameter(row.name)
        neurons = nero.layout.neurons_from_options(group, param.shape)
        hyper = Hyper.read(group).for_neurons(neurons)
        assert row.constraint == str(hyper.constraint)
        assert ("polar direction" in row.reason) == (hyper.direction == "polar")
        kept = sum(t.numel() * t.element_size() for t in optimizer.state[param].values())
        assert row.state_bytes == kept


# --- copies, pickles, checkpoints and later groups agree ---


def by_checkpoint(optimizer):
    again = Nero([*network().named_parameters()], preset=optimizer.defaults["preset"])
    again.load_state_dict(optimizer.state_dict())
    return again


COPIES = {
    "itself": lambda optimizer: optimizer,
    "deepcopy": copy.deepcopy,
    "pickle": lambda optimizer: pickle.loads(pickle.dumps(optimizer)),
    "checkpoint": by_checkpoint,
}
GIVEN = [
    {"preset": "rows"},
    {"preset": "rows", "constraint": nero.BALANCED},
    {"preset": "polar", "direction": "polar"},
    {"preset": "polar", "momentum": 0.5, "lr": 0.02},
    {"preset": "paper", "constraint": "norm"},
]


@pytest.mark.filterwarnings("ignore::nero.LayoutWarning")
@pytest.mark.parametrize("copied", COPIES.values(), ids=[*COPIES])
@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_a_group_added_later_is_as_if_added_first(given, copied):
    first = Nero([*network().named_parameters()], **given)
    later = copied(Nero([*network().named_parameters()], **given))
    fresh = Nero(nn.Embedding(10, 16), **given)
    later.add_param_group({"params": nn.Embedding(10, 16).parameters()})
    first.add_param_group({"params": nn.Embedding(10, 16).parameters()})
    for key in ("lr", "momentum", "direction", "constraint", "preset", "chosen"):
        assert (
            later.param_groups[-1][key] == first.param_groups[-1][key] == fresh.param_groups[0][key]
        )
    for key in ("lr", *Hyper._fields, "preset", "chosen"):
        assert later.defaults[key] == first.defaults[key]


@pytest.mark.filterwarnings("ignore::nero.LayoutWarning")
@pytest.mark.parametrize("given", [{"preset": "rows"}, GIVEN[3]], ids=str)
def test_a_pickle_from_before_choices_were_kept_knows_them_by_value(given):
    optimizer = Nero([*network().named_parameters()], **given)
    for options in (optimizer.defaults, *optimizer.param_groups):
        del options["chosen"]
    older = pickle.loads(pickle.dumps(optimizer))
    older.add_param_group({"params": nn.Embedding(10, 16).parameters()})
    (fresh,) = Nero(nn.Embedding(10, 16), **given).param_groups
    for key in ("lr", "momentum", "direction", "constraint", "preset", "chosen"):
        assert older.param_groups[-1][key] == fresh[key]


def test_a_checkpoint_of_another_preset_decides_about_later_groups():
    model = network()
    saved = Nero(model, preset="rows", momentum=0.8).state_dict()
    optimizer = Nero(model)
    with (
        pytest.warns(UserWarning, match="saved with preset='rows', whose options replace"),
        pytest.warns(UserWarning, match="`2.weight` was saved with beta=0.95"),
    ):
        optimizer.load_state_dict(saved)
    optimizer.add_param_group({"params": nn.Embedding(10, 16).parameters()})
    group = optimizer.param_groups[-1]
    assert (group["lr"], group["momentum"]) == (0.03, 0.8)
    assert group["constraint"].radius == "sqrt_dim"


def test_what_one_group_chose_is_not_for_groups_added_after_a_checkpoint():
    """Options that all groups share are the optimizer's; those of an override are its parameters' own."""

    def build():
        own = {"lr": 0.5, "momentum": 0.5, "constraint": "norm"}
        return Nero(network(), preset="rows", beta=0.995, overrides={"2.weight": own})

    loaded, never_saved = build(), build()
    loaded.load_state_dict(build().state_dict())
    for optimizer in (loaded, never_saved):
        optimizer.add_param_group({"params": nn.Linear(16, 3).parameters()})
    added, expected = (optimizer.param_groups[-1] for optimizer in (loaded, never_saved))
    for key in ("lr", *Hyper._fields, "preset", "chosen"):
        assert added[key] == expected[key]
    assert (added["lr"], added["momentum"], added["beta"]) == (0.03, 0.9, 0.995)


# --- learning rates ---


@pytest.mark.parametrize("preset", ["rows", "polar"])
def test_a_rate_far_below_the_presets_is_heard(preset):
    with pytest.warns(UserWarning, match="lr=0.0003.*Adam learning rate.*use 0.03"):
        Nero(network(), preset=preset, lr=3e-4)
    Nero(network(), preset=preset, lr=1e-3)  # warnings are errors here
    Nero(network(), preset=preset, lr=3e-4, constraint="initial")  # to fine-tune
    Nero(network(), lr=3e-4)


def test_a_group_added_later_is_judged_too():
    optimizer = Nero(network(), preset="rows")
    with pytest.warns(UserWarning, match="lr=0.0003.*Adam learning rate"):
        optimizer.add_param_group({"params": nn.Linear(3, 2).parameters(), "lr": 3e-4})


def test_a_rate_that_is_too_large_is_said_once():
    with pytest.warns(UserWarning, match="lr=1.5") as caught:
        Nero(network(), lr=1.5)
    assert len(caught) == 1


def test_a_tensor_is_followed_as_torchs_optimizers_follow_it():
    lr = torch.tensor(0.01)
    model = network()
    optimizer = Nero(model, lr=lr, overrides={"2.bias": {"lr": 0.002}})
    rates = [group["lr"] for group in optimizer.param_groups]
    assert len(rates) > 2
    assert len({id(rate) for rate in rates}) == len(rates)
    model(torch.arange(3)).square().sum().backward()
    lr.fill_(0.5)
    optimizer.step()
    found = sorted(float(group["lr"]) for group in optimizer.param_groups)
    assert found == pytest.approx([0.002, *[0.5] * (len(rates) - 1)])
    # Whoever wrote last wins: each group has a tensor of its own, so a loop multiplies it once.
    for group in optimizer.param_groups:
        group["lr"] *= 0.1
    optimizer.step()
    found = sorted(float(group["lr"]) for group in optimizer.param_groups)
    assert found == pytest.approx([0.0002, *[0.05] * (len(rates) - 1)])


# --- repr ---


def test_repr_has_one_line_per_group_and_says_what_acts():
    text = repr(Nero(network(), preset="polar", gain_penalty=0.0))
    head, columns, *lines = text.splitlines()
    assert head == "Nero(preset='polar')"
    assert columns.split() == [
        "group",
        "role",
        "parameters",
        "weights",
        "lr",
        "constraint",
        "options",
    ]
    assert len(lines) == 4
    by_role = {line.split()[1]: line for line in lines}
    assert re.search(
        r"bias +2 +26 +0.03  none +beta=0.99, norm=peak, momentum=0.9$", by_role["bias"]
    )
    assert re.search(
        r"embedding +1 +160 +0.03  mean 0, norm 4 +beta=0.95, norm=peak, momentum=0.9$",
        by_role["embedding"],
    )
    assert sum("direction=polar" in line for line in lines) == 1


def test_repr_shows_groups_without_roles_and_tensors():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = repr(Nero([*network().parameters()], lr=torch.tensor(0.25)))
    assert "by shape" in text
    assert "0.25" in text


def test_an_unknown_option_is_answered_with_those_a_user_can_give():
    with pytest.raises(TypeError, match=r"the options are .*momentum") as caught:
        nero.Nero([torch.nn.Parameter(torch.randn(3, 3))], wings=2)
    assert "chosen" not in str(caught.value)
