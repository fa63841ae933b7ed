"""What scores cost: steps to a target, time and bytes."""

import math
from pathlib import Path

import pytest
from made_up_runs import read_results, report_text, write_finals, write_run, write_times

from nero_lab.report import write_report
from nero_lab.report.costs import costs, draw
from nero_lab.runner.config import RunConfig
from nero_lab.tasks import TASKS


def test_steps_to_the_last_score_of_adam(tmp_path: Path) -> None:
    # An epoch of these has ten steps.
    for optimizer, curve in {
        "nero": [30.0, 22.0, 18.0],
        "adam": [40.0, 30.0, 20.0],
        "lamb": [40.0, 35.0, 30.0],
    }.items():
        write_run(tmp_path, RunConfig("cifar-resnet18", "cpu", optimizer), curve)
    seconds = {"nero": [0.1, 0.2, 0.3], "adam": [0.2, 0.4, 0.5]}
    write_times(tmp_path / "times.json", "cifar-resnet18", seconds)
    (found,) = costs(read_results(tmp_path)["cifar-resnet18"])
    assert (found.reference, found.target) == ("adam", 20.0)
    table = found.table.set_index("optimizer")
    assert list(table.index) == ["nero", "adam", "lamb"]
    assert table.steps.to_dict() == {"nero": 25.0, "adam": 30.0, "lamb": math.inf}
    assert (table.seconds["nero"], table.seconds["adam"]) == (6.0, 12.0)
    assert math.isnan(table.seconds["lamb"])
    draw(found, read_results(tmp_path)["cifar-resnet18"].metric, tmp_path / "costs.png")


def test_steps_to_the_target_of_a_public_yardstick(tmp_path: Path) -> None:
    for optimizer, curve in {
        "nero": [4.28, 2.28],
        "adamw": [5.28, 3.28],
        "muon": [3.78, 3.28 + 1e-6],
    }.items():
        for scale in ("cpu", "paper"):
            write_run(tmp_path, RunConfig("fineweb-gpt2", scale, optimizer), curve)
    at_paper, at_cpu = (
        next(costs(read_results(tmp_path, scale)["fineweb-gpt2"])) for scale in ("paper", "cpu")
    )
    assert (at_paper.reference, at_paper.goal) == ("", "3.28")
    steps = at_paper.table.set_index("optimizer").steps
    assert steps["nero"] == pytest.approx(15)
    assert (steps["adamw"], steps["muon"]) == (20, math.inf)
    assert at_cpu.reference == "adamw"  # a small network is not held to it
    draw(at_paper, TASKS["fineweb-gpt2"].metric, tmp_path / "costs.png")
    write_report(tmp_path, tmp_path / "out", scale="paper")
    assert "is first as good as 3.28, interpolated" in report_text(tmp_path / "out")


def test_a_target_is_reached_from_below_where_more_is_better(tmp_path: Path) -> None:
    for optimizer, curve in {
        "nero": [0.2, 0.6, 0.7],
        "adam": [0.1, 0.3, 0.4],
        "sgd": [0.1] * 3,
    }.items():
        write_run(tmp_path, RunConfig("mnist-deep", "cpu", optimizer), curve)
    (found,) = costs(read_results(tmp_path)["mnist-deep"])
    steps = found.table.set_index("optimizer").steps
    assert (steps["nero"], steps["sgd"]) == (15.0, math.inf)


def test_runs_that_go_on_and_values_that_are_infinite_do_not_move_the_target(
    tmp_path: Path,
) -> None:
    for optimizer, curve in {
        "nero": [math.inf, 10.0],
        "adam": [40.0, 20.0],
        "sgd": [40.0, 50.0],
    }.items():
        write_run(tmp_path, RunConfig("wikitext2", "cpu", optimizer), curve)
    going_on = RunConfig("wikitext2", "cpu", "nero", seed=1)
    write_run(tmp_path, going_on, [90.0], status="unfinished")
    (found,) = costs(read_results(tmp_path)["wikitext2"])
    steps = found.table.set_index("optimizer").steps
    assert (steps["nero"], steps["adam"], steps["sgd"]) == (20.0, 20.0, math.inf)


def test_costs_need_a_reference_and_optimizers_that_came_to_their_end(tmp_path: Path) -> None:
    write_finals(tmp_path, "cifar-resnet18", {"nero": (9.0,), "sgd": (9.0,), "lamb": (9.0,)})
    assert not list(costs(read_results(tmp_path)["cifar-resnet18"]))
    write_run(tmp_path, RunConfig("cifar-resnet18", "cpu", "adam"), [9.0], status="diverged")
    assert not list(costs(read_results(tmp_path)["cifar-resnet18"]))
    write_run(tmp_path, RunConfig("cifar-resnet18", "cpu", "adam"), [9.0, 9.0])
    assert len(list(costs(read_results(tmp_path)["cifar-resnet18"]))) == 1
