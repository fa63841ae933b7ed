"""`nero theory` as it is typed."""

import argparse
import json
import math

import pytest
from torch import nn

from nero.theory.command import TheoryError, add_arguments, run_command

ASKED = ["my_models:net", "--n", "1000", "--alpha", "0.2"]


def run(arguments, model=None):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    model = model or nn.Sequential(nn.Linear(20, 30), nn.BatchNorm1d(30), nn.Linear(30, 4))
    run_command(parser.parse_args(arguments), model)


def test_prints_tables(capsys):
    run(ASKED)
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    assert lines[1][:4] == ["0.weight", "30", "20", "18"]
    assert lines[3][:3] == ["all", "34", f"{30 * 18 + 4 * 28}"]
    assert "left out, because no sphere describes them: 3 x bias, 1 x gain" in printed
    assert "alpha = 0.2 rad, n = 1,000, delta = 0.05, ln K = 0" in printed


def test_prints_json(capsys):
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


def test_says_what_has_no_answer():
    with pytest.raises(TheoryError, match="no parameter of the model has neurons on a sphere"):
        run(ASKED, nn.LayerNorm(4))
    with pytest.raises(TheoryError, match="do not fit"):
        run([*ASKED, "--log-k", "1e6"])
    with pytest.raises(TheoryError, match="0 or more, but is -inf"):
        run([*ASKED, "--log-k=-inf"])
    with pytest.raises(TheoryError, match="no parameter of the model"):
        run([*ASKED, "--constraint", "none"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["m:f", "--n", "1", "--alpha", "0.1"], "not a whole number from 2 on"),
        (["m:f", "--n", "10", "--alpha", "4"], "not an angle in radians"),
        (["m:f", "--n", "10", "--alpha", "five"], "not an angle in radians"),
        ([*ASKED, "--delta", "0"], "not a proportion"),
        (["m:f", "--n", "10"], "required: --alpha"),
    ],
)
def test_refuses_bad_options(arguments, message, capsys):
    with pytest.raises(SystemExit):
        run(arguments)
    assert message in capsys.readouterr().err
