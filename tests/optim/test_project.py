"""Projection in place, a few neurons at a time."""

import pytest
import torch
from torch import nn

import nero
from nero.core import held

LAYOUTS = {
    "rows": ((40, 30), {"neuron_dims": (0,)}),
    "columns": ((40, 30), {"neuron_dims": (1,)}),
    "experts": ((5, 12, 30), {"neuron_dims": (0, 2)}),
    "grouped": ((12, 6, 3), {"neuron_dims": (1,), "num_groups": 2}),
    "all one neuron": ((40, 30), {"neuron_dims": ()}),
}


@pytest.mark.parametrize("constraint", ["balanced", "initial", "mean"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_give_the_bits_of_the_whole(layout, constraint, monkeypatch):
    shape, options = LAYOUTS[layout]
    weights = []
    for block in (2**18, 64):
        torch.manual_seed(0)
        monkeypatch.setattr(held, "_BLOCK", block)
        param = nn.Parameter(1 + torch.randn(shape))
        nero.Nero([{"params": [param], **options}], constraint=constraint)
        weights.append(param.detach())
    assert torch.equal(*weights)


def test_what_is_computed_stays_small(monkeypatch):
    monkeypatch.setattr(held, "_BLOCK", 300)
    seen = []
    monkeypatch.setattr(
        held, "project", lambda weight, **_: (seen.append(weight.numel()), weight)[1]
    )
    nero.project_(nn.Linear(30, 100, bias=False))
    assert sum(seen) == 3000
    assert max(seen) <= 300
