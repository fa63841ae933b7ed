"""`nero theory` as it is typed."""

import argparse
import json
import math

import pytest
from torch import nn

from nero.cli.arguments import CommandError
from nero_tools.theory import command

ASKED = ["my_models:net", "--n", "1000", "--alpha", "0.2"]


@pytest.fixture
def run(monkeypatch):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    net = nn.Sequential(nn.Linear(20, 30), nn.BatchNorm1d(30), nn.Linear(30, 4))

    def run(arguments, model=net):
        monkeypatch.setattr(command, "load_model", lambda target: model)
        command.run(parser.parse_args(arguments))

    return run


def test_prints_tables(run, capsys):
    run(ASKED)
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    assert lines[1][:4] == ["0.weight", "30", "20", "18"]
    assert lines[3][:3] == ["all", "34", f"{30 * 18 + 4 * 28}"]
    assert "left out, because no sphere describes them: 3 x bias, 1 x gain" in printed
    assert "alpha = 0.2 rad, n = 1,000, delta = 0.05, ln K = 0" in printed


def test_prints_json(run, capsys):
    run([*ASKED, "--delta", "0.1", "--log-k", "3", "--constraint", "norm", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["layers"][0]["sphere_dim"] == 19
    dims = 30 * 19 + 4 * 29
    assert told["num_dims"] == dims
    log_measure = 3 - 34 * math.log(2) + dims * math.log(math.sin(0.1))
    bound = told["bounds"]["paper"]
    assert bound["log_measure"] == pytest.approx(log_measure)
    assert bound["linear"] == pytest.approx((math.log(2000 / 0.1) - log_measure) / 999)
    assert told["bounds"]["exact"]["samples_needed"] < bound["samples_needed"]
    assert told["left_out"]["1.weight"] == "gain"
    measures = [layer["log_measure_exact"] for layer in told["layers"]]
    assert told["log_solutions_that_fit"] == pytest.approx(-sum(measures))


def test_says_what_has_no_answer(run):
    with pytest.raises(CommandError, match="no parameter of the model has neurons on a sphere"):
        run(ASKED, nn.LayerNorm(4))
    with pytest.raises(CommandError, match="do not fit"):
        run([*ASKED, "--log-k", "1e6"])
    with pytest.raises(CommandError, match="0 or more, but is -inf"):
        run([*ASKED, "--log-k=-inf"])
    with pytest.raises(CommandError, match="no parameter of the model"):
        run([*ASKED, "--constraint", "none"])
