"""Does check_balance say what is_balanced says, and balance_ repair what can be repaired?"""

import math

import pytest
import torch
from torch import nn

import nero
from nero.diagnostics import balance_, check_balance
from nero.functional import is_balanced


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Embedding(9, 6, padding_idx=2),
        nn.Conv1d(6, 8, 3),
        nn.BatchNorm1d(8),
        nn.ConvTranspose1d(8, 6, 3, groups=2),
        nn.Linear(4, 2),
        nn.Linear(2, 5),
    )


def test_agrees_with_is_balanced_neuron_by_neuron():
    model = network()
    nero.project_(model)
    with torch.no_grad():
        model[1].weight[3] *= 1.01
        model[1].weight[5] += 0.1
        model[3].weight[4:, 2] *= 2  # neuron 2 of the second group
        model[5].weight[1] = 0.7071  # fan-in 2: any direction will do
        model[5].weight[4] = math.nan
    report = check_balance(model)
    assert {row.name: row.unbalanced for row in report.rows} == {
        "0.weight": (2,),
        "1.weight": (3, 5),
        "3.weight": (5,),
        "4.weight": (),
        "5.weight": (1, 4),
    }
    wanted = is_balanced(model[1].weight, fan_in_dims=(1, 2)).flatten()
    assert wanted.logical_not().nonzero().flatten().tolist() == [3, 5]
    assert not report.is_balanced
    assert not report
    rows = {row.name: row for row in report.rows}
    assert rows["0.weight"].without_direction == (2,)
    assert rows["1.weight"].norm_drift > 0.01
    assert rows["5.weight"].mean_drift is None
    assert rows["1.weight"].mean_drift > 0.1


def test_repair():
    model = network()
    before = check_balance(model)
    assert not before.is_balanced
    after = balance_(model)
    assert [row.name for row in after.rows if row.unbalanced] == ["0.weight"]
    assert after.rows[0].unbalanced == after.rows[0].without_direction == (2,)
    assert after.summary() == "not balanced: 1 of 30 neurons are off"
    del model[0]
    repaired = check_balance(model)
    assert repaired.is_balanced
    bits = [p.clone() for p in model.parameters()]
    balance_(model)
    assert all(torch.equal(p, q) for p, q in zip(bits, model.parameters(), strict=True))


def test_a_constant_row_is_said_to_have_no_direction():
    model = nn.Linear(6, 3).double()
    with torch.no_grad():
        model.weight[1] = 0.3
    report = balance_(model)
    assert report.rows[0].unbalanced == report.rows[0].without_direction == (1,)


def test_other_constraints_and_overrides():
    model = network()[3:]
    overrides = [("3.weight", {"constraint": "none"})]
    balance_(model, constraint="norm", overrides=overrides)
    report = check_balance(model, constraint="norm", overrides=overrides)
    assert report.is_balanced
    assert report.rows[0].constraint == "none"
    assert report.rows[0].norm_drift is None
    assert not check_balance(model)


def test_an_optimizer_knows_its_own_constraints():
    for make in (
        lambda m: nero.Nero(m, constraint="initial"),
        lambda m: nero.Balanced(torch.optim.SGD(nero.param_groups(m), lr=0.1), "initial"),
    ):
        model = network()[1:]
        optimizer = make(model)
        for _ in range(2):
            for param in model.parameters():
                param.grad = torch.randn_like(param)
            optimizer.step()
        assert check_balance(optimizer).is_balanced
        with torch.no_grad():
            model[0].weight[1] *= 1.5
        report = check_balance(optimizer)
        assert [row.unbalanced for row in report.rows if row.unbalanced] == [(1,)]
        assert not check_balance(model)
    adam = torch.optim.Adam(model.parameters())
    assert not check_balance(adam)
    balance_(model)
    # By shapes alone the neurons of a ConvTranspose are looked for in the wrong place.
    assert [r.name for r in check_balance(adam).rows if r.unbalanced] == ["groups.0.params.4"]
    with pytest.raises(TypeError, match="pass the model"):
        check_balance(adam, overrides=overrides_of_anything())
    with pytest.raises(ValueError, match="refers to initial norms"):
        check_balance(model, constraint="initial")


def overrides_of_anything():
    return [("*", {"constraint": "none"})]


def test_what_is_printed():
    model = nn.Sequential(nn.Linear(8, 12), nn.Linear(12, 3))
    balance_(model)
    assert str(check_balance(model, explain=False)) == "balanced: all 15 neurons"
    with torch.no_grad():
        model[0].weight[1:8] *= 2
    assert str(check_balance(model)).splitlines() == [
        "layer     neurons  off  off mean  off norm  constraint      which",
        "0.weight       12    7         0         1  mean 0, norm 1  1, 2, 3, 4 and 3 more",
        "1.weight        3    0         0         0  mean 0, norm 1  -",
        "",
        "not balanced: 7 of 15 neurons are off",
    ]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_every_dtype_has_its_own_tolerance(dtype):
    model = network()[1:].to(dtype)
    assert balance_(model).is_balanced


def test_a_network_without_neurons_says_so():
    assert str(check_balance(nn.LayerNorm(4))) == "no neurons to balance"


@pytest.mark.parametrize(
    "build",
    [
        lambda model, overrides: nero.Nero(model, overrides=overrides),
        lambda model, overrides: nero.Balanced(
            torch.optim.SGD(nero.param_groups(model, overrides=overrides), lr=0.1)
        ),
    ],
)
def test_layers_that_an_optimizer_leaves_free_are_not_off(build):
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))
    optimizer = build(model, [("1.weight", {"constraint": "none"})])
    rows = {row.name: row.constraint for row in check_balance(optimizer).rows}
    assert check_balance(optimizer).is_balanced
    assert sorted(rows.values()) == ["mean 0, norm 1", "none"]
    assert not check_balance(torch.optim.SGD(nn.Linear(6, 4).parameters())).is_balanced


def test_a_neuron_of_norm_one_is_off_by_its_mean_alone():
    layer = nn.Linear(6, 3, bias=False)
    nero.project_(layer)
    with torch.no_grad():
        layer.weight[1] += 0.1
        layer.weight[1] /= layer.weight[1].norm()
    (row,) = check_balance(layer).rows
    assert row.unbalanced == (1,)
    assert row.norm_drift <= row.tolerance
