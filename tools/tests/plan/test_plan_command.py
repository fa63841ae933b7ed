"""`nero plan` as it is typed."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from nero import LayoutWarning
from nero.cli import main
from nero.cli.arguments import CommandError
from nero_tools.plan.mesh import Ranks
from nero_tools.plan.simulate import plan

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
    assert printed["plans"][1]["ranks"] == {
        **{"replicate": 1, "fsdp": 4, "tp": 1},
        **{"zero": 1, "zero3": 1},
    }
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


class Unregistered(nn.Module):
    """Keeps its own matrix as (in, out), and uses its embedding as output layer by a function."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.mix = nn.Parameter(torch.empty(16, 24))
        self.down = nn.Linear(24, 16)

    def forward(self, tokens):
        return nn.functional.linear(self.down(self.embed(tokens) @ self.mix), self.embed.weight)


def tokens():
    return torch.zeros(2, 5, dtype=torch.long)


@pytest.mark.filterwarnings("error::nero.LayoutWarning")
def test_an_example_shows_how_a_model_uses_its_parameters(capsys):
    name = f"{__name__}:"
    command = ["plan", "--model", f"{name}Unregistered", "--mesh", "fsdp=2", "--json"]
    costs = {}
    for only in ("nero", "nero-rows", "nero-polar"):
        with pytest.raises(LayoutWarning, match="`mix` are guessed"):
            main([*command, "--optimizers", only])
        capsys.readouterr()
        assert main([*command, "--optimizers", only, "--example", f"{name}tokens"]) == 0
        ((costs[only],),) = [
            p["costs"].values() for p in json.loads(capsys.readouterr().out)["plans"]
        ]
    # FSDP2 cuts dim 0, which is the fan-in of `mix`: its sums are added up, as a guess would not have it.
    assert costs["nero"]["num_collectives"] == costs["nero-rows"]["num_collectives"] == 1
    assert costs["nero-polar"]["num_collectives"] >= 1


def test_an_example_changes_nothing_where_all_layers_are_registered():
    model = nn.Sequential(
        nn.Embedding(32, 16), nn.Linear(16, 24), nn.LayerNorm(24), nn.Linear(24, 8)
    )
    for ranks in (Ranks(fsdp=2), Ranks(fsdp=4), Ranks()):
        bare, seen = (plan(model, ranks, example=each).costs for each in (None, tokens()))
        assert [*bare] == [*seen]
        for name in bare:
            assert replace(bare[name], seconds=0) == replace(seen[name], seconds=0), name


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
