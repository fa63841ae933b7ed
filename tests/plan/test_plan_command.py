"""`nero plan` as it is typed."""

import json
import sys

import pytest
import torch
from torch import nn

from nero.tools.arguments import CommandError
from nero.tools.cli import main
from nero.tools.plan.mesh import Ranks
from nero.tools.plan.simulate import plan

TINY = ["plan", "--model", "llama-tiny"]


def test_prints_a_table(capsys):
    assert main([*TINY, "--mesh", "fsdp=4,tp=2"]) == 0
    title, _, *rows = capsys.readouterr().out.splitlines()
    assert "19,616 parameters on 8 ranks (fsdp=4,tp=2)" in title
    names = ["nero", "nero-rows", "nero-rows-bf16", "nero-polar", "adamw", "lamb", "muon"]
    assert [row.split()[0] for row in rows] == names
    assert [row.split()[3] for row in rows[:5]] == ["1", "1", "1", "5", "0"]


def test_prints_json(capsys):
    meshes = ["--mesh", "fsdp=2", "--mesh", "fsdp=4"]
    assert main([*TINY, *meshes, "--optimizers", "adamw,nero", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [plan["num_ranks"] for plan in printed["plans"]] == [2, 4]
    assert [*printed["plans"][0]["costs"]] == ["adamw", "nero"]
    assert printed["plans"][1]["ranks"] == {"replicate": 1, "fsdp": 4, "tp": 1}
    assert printed["plans"][1]["costs"]["nero"]["communicated_bytes"] == 0


def test_writes_json_and_a_picture_and_prints_the_table(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    out, picture = tmp_path / "plan.json", tmp_path / "plan.png"
    meshes = ["--mesh", "fsdp=2", "--mesh", "fsdp=4"]
    only = ["--optimizers", "nero,adamw"]
    assert main([*TINY, *meshes, *only, "--json", str(out), "--plot", str(picture)]) == 0
    assert "llama-tiny" in capsys.readouterr().out
    assert len(json.loads(out.read_text())["plans"]) == 2
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_plans_for_any_model(capsys):
    model = ["plan", "--model", "torch.nn:TransformerDecoder"]
    assert main([*model, "--mesh", "fsdp=2"]) == 2
    assert "cannot be called without arguments" in capsys.readouterr().err
    assert main(["plan", "--model", "torch.nn:PReLU", "--optimizers", "nero"]) == 0
    assert "1 parameters on 8 ranks (fsdp=8)" in capsys.readouterr().out


def test_says_that_there_is_no_matplotlib(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*TINY, "--plot", "plan.png"]) == 2
    assert "needs matplotlib" in capsys.readouterr().err


class Odd(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.odd = nn.Parameter(value)


def test_parameters_that_cannot_be_stepped_or_cut_are_named():
    planned = plan(Odd(torch.zeros(4, 4, dtype=torch.complex64)), Ranks(fsdp=2))
    assert "`odd` is torch.complex64" in planned.left_out["nero"]
    assert "adamw" in planned.costs
    with pytest.raises(CommandError, match="scalar parameters"):
        plan(Odd(torch.zeros(())), Ranks(fsdp=2))


def test_frozen_parameters_cost_nothing():
    layers = nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(4)))
    for layer in layers[1:]:
        layer.requires_grad_(False)
    adamw = plan(layers, Ranks(fsdp=2), optimizers=["adamw"]).costs["adamw"]
    alone = plan(layers[:1], Ranks(fsdp=2), optimizers=["adamw"]).costs["adamw"]
    assert adamw.state_bytes == alone.state_bytes


def test_picture_that_cannot_be_drawn_leaves_the_table(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert main([*TINY, "--optimizers", "nero", "--plot", str(tmp_path / "plan.bogus")]) == 2
    assert "llama-tiny" in capsys.readouterr().out
