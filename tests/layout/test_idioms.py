"""No silent misreading: in each idiom a parameter is either right, or named in a warning."""

import re
import warnings

import pytest
import torch

import nero
from tests.layout.idioms import IDIOMS, SCORED, Want


def read(model, example):
    """Return what each parameter is taken for, and the names that warnings mention."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        nero.param_groups(model, example=example)
        rows = nero.describe(model, preset="rows", example=example).rows
    found = {row.name: Want(row.role, row.num_neurons, row.constraint) for row in rows}
    text = " ".join(str(each.message) for each in heard)
    assert all(isinstance(each.message, nero.LayoutWarning) for each in heard)
    assert " more " not in text, "so that every name is in the message"
    return found, {name for name in re.findall("`(.*?)`", text) if name in found}


@pytest.mark.parametrize("name", IDIOMS)
def test_right_with_an_example(name):
    idiom = IDIOMS[name]
    found, heard = read(idiom.model(), idiom.example)
    assert {name: found[name] for name in idiom.wanted} == idiom.wanted
    assert not heard


# What stands alone in either case may be called a gain, a bias or anything else.
def is_harmless(want, found):
    return want.constraint == found.constraint == "none"


@pytest.mark.parametrize("name", IDIOMS)
def test_right_or_named_without_an_example(name):
    idiom = IDIOMS[name]
    found, heard = read(idiom.model(), None)
    assert {name: found[name] for name in idiom.wanted} == {**idiom.wanted, **idiom.without}
    assert heard == {*idiom.guessed}
    wrong = [
        name for name, want in idiom.without.items() if not is_harmless(want, idiom.wanted[name])
    ]
    assert {*wrong} <= heard


@pytest.mark.parametrize("name", IDIOMS)
def test_passes_run(name):
    model, example = IDIOMS[name].model(), IDIOMS[name].example
    model(*example) if isinstance(example, tuple) else model(example)


def test_polar_does_not_orthogonalize_positions():
    idiom = IDIOMS["GPT"]
    for example in (None, idiom.example):
        model = idiom.model()
        optimizer = nero.Nero(model, preset="polar", example=example, fused=False)
        (group,) = [g for g in optimizer.param_groups if any(p is model.pos for p in g["params"])]
        assert group["role"] == "embedding"
        assert torch.allclose(model.pos.norm(dim=1), torch.tensor(4.0))


@pytest.mark.parametrize("name", SCORED)
def test_scores_are_of_order_one(name):
    model, example, tables = SCORED[name]
    found, _ = read(model(), example)
    assert "mean 0, norm 1" in [found[table].constraint for table in tables]


# Without a pass, nothing tells the recommender's tables from those that its first layer reads.
@pytest.mark.parametrize("name", sorted(SCORED.keys() - {"recommender"}))
def test_tables_that_may_meet_in_scores_are_named_without_an_example(name):
    model, _, tables = SCORED[name]
    with pytest.warns(nero.LayoutWarning) as caught:
        nero.Nero(model(), preset="rows", fused=False)
    assert any(f"`{table}`" in str(each.message) for each in caught for table in tables)
