"""The pictures that the page opens with."""

import math
from pathlib import Path

import pytest
from made_up_runs import best_of, read_results, report_text, write_finals, write_run

from nero_lab.report import write_report
from nero_lab.report.heat_map import gaps
from nero_lab.report.overview import relative
from nero_lab.report.page import judge
from nero_lab.report.tables import in_short, pairs_table
from nero_lab.runner.config import RunConfig
from nero_lab.tasks import TASKS

FINALS = {"nero": (10.0, 11.0, 10.5), "sgd": (20.0, 22.0, 21.0), "adam": (8.0, 8.8, 8.4)}


def test_advantages_are_in_percent_of_the_rival(tmp_path: Path) -> None:
    write_finals(tmp_path, "cifar-resnet18", FINALS)
    found = read_results(tmp_path)["cifar-resnet18"]
    nero = best_of(found, "nero")
    assert relative(nero, best_of(found, "sgd")).mean == pytest.approx(50.0)
    assert relative(nero, best_of(found, "adam")).mean == pytest.approx(-25.0)
    low, high = relative(nero, best_of(found, "sgd"))[1:3]
    assert low < 50 < high


def test_a_reward_that_is_higher_is_an_advantage(tmp_path: Path) -> None:
    write_finals(tmp_path, "pong", {"nero": (-10.0, -10.0), "lamb": (-20.0, -20.0)})
    found = read_results(tmp_path)["pong"]
    assert relative(best_of(found, "nero"), best_of(found, "lamb")).mean == pytest.approx(50.0)


def test_claims_have_their_comparisons_in_a_table(tmp_path: Path) -> None:
    write_finals(tmp_path, "cifar-resnet18", FINALS)
    verdicts = judge(TASKS, read_results(tmp_path), {})
    (verdict,) = (v for claim, v in verdicts.items() if claim.key == "best-cifar-resnet18")
    assert in_short(verdict) == "Adam 8.400; Nero 10.50; SGD 21.00"
    table = pairs_table(verdicts)
    assert set(table["pairwise, at 95%"]) == {"better", "worse"}
    assert len(table) == 2


def test_gaps_are_from_the_best_of_each_task(tmp_path: Path) -> None:
    for task in ("cifar-resnet18", "cifar-vgg11", "wikitext2"):
        write_finals(tmp_path, task, {"nero": (10.0,), "adam": (15.0,)})
    write_run(tmp_path, RunConfig("wikitext2", "cpu", "nero", 0.5), [math.inf], status="diverged")
    write_finals(tmp_path, "wikitext2", {"muon": (5.0,)})  # on too few tasks to be shown
    found = gaps(read_results(tmp_path)).set_index(["task", "optimizer", "lr"]).gap
    assert found["cifar-vgg11", "adam", 0.001] == pytest.approx(50.0)
    assert found["wikitext2", "nero", 0.01] == pytest.approx(100.0)
    assert found["wikitext2", "nero", 0.5] == math.inf
    assert "muon" not in found.index.get_level_values("optimizer")


def test_both_are_drawn_where_there_is_something_to_show(tmp_path: Path) -> None:
    for task in ("cifar-resnet18", "cifar-vgg11", "wikitext2"):
        write_finals(tmp_path / "runs", task, FINALS)
    write_report(tmp_path / "runs", tmp_path / "out")
    markdown = report_text(tmp_path / "out")
    for name in ("verdict.png", "rates.png"):
        assert (tmp_path / "out" / "figures" / name).stat().st_size > 10_000
        assert f"figures/{name}" in markdown
    assert "“held” for 0." in markdown  # how often the rule is wrong
