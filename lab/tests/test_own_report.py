"""Reports on one's own runs: on tasks that the paper does not know, or without what it says."""

import shutil
from pathlib import Path

import pytest
from command_line import Call, call, files_below
from made_up_runs import write_finals

from nero_lab.engine.results import read_all

__all__ = ["call"]  # a fixture

EXAMPLE = Path(__file__).parents[1] / "examples" / "spirals.py"
SMOKE = ("--scale", "smoke", "--quiet", "--no-tensorboard")


@pytest.fixture(autouse=True)
def example(tmp_path: Path) -> None:
    """Put the example where the command is given."""
    shutil.copy(EXAMPLE, tmp_path)


def test_a_task_beside_the_command_is_run_and_reported_on(call: Call, tmp_path: Path) -> None:
    for optimizer in ("nero", "adam"):
        ended = call("run", "spirals:TASK", *SMOKE, "--optimizer", optimizer)
        assert ended.code == 0, ended.err
        assert ended.out.startswith(f"spirals/smoke/{optimizer}-lr")
        assert "finished, validation accuracy" in ended.out
    found = read_all(tmp_path / "runs")
    assert {record.config["task"] for record in found} == {"spirals:TASK"}
    ended = call("report", "--tasks", "spirals:TASK")
    assert (ended.code, ended.err) == (0, "")
    page = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert page.startswith("# Runs of nero-lab\n")
    assert "A perceptron that tells two spirals apart (`spirals:TASK`)" in page
    assert "(figures/spirals.TASK-others.png)" in page
    assert (tmp_path / "report" / "figures" / "spirals.TASK-others.png").exists()
    for words in ("Verdict", "claim", "paper", "published", "authors", "mnist"):
        assert words not in page, words
    html = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "<title>Runs of nero-lab</title>" in html


def test_a_report_names_the_tasks_that_it_leaves_out(call: Call, tmp_path: Path) -> None:
    assert call("run", "spirals:TASK", *SMOKE).code == 0
    write_finals(tmp_path / "runs", "shakespeare", {"nero": (1.0,)})
    ended = call("report")
    assert ended.code == 0
    (line,) = ended.err.splitlines()
    assert "records.jsonl" in line
    assert "spirals:TASK is not among this report's tasks: see --tasks" in line


def test_tasks_can_be_chosen(call: Call, tmp_path: Path) -> None:
    write_finals(tmp_path / "runs", "shakespeare", {"nero": (1.0,), "adamw": (2.0,)})
    write_finals(tmp_path / "runs", "pong", {"nero": (1.0,), "adam": (2.0,)})
    ended = call("report", "--tasks", "pong")
    assert (ended.code, ended.err) == (0, "")
    page = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert "LAMB with beta1 = 0 does not learn Pong" in page  # a claim that Pong tests
    assert "100-layer MLP" not in page
    assert "Shakespeare" not in page


def test_the_paper_can_be_left_out(call: Call, tmp_path: Path) -> None:
    write_finals(tmp_path / "runs", "cifar-vgg11", {"nero": (10.0,), "sgd": (12.0,)})
    before = files_below(tmp_path)
    assert call("report", "--tasks", "cifar-vgg11", "--no-paper").code == 0
    page = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert "VGG-11 without batch norm on CIFAR-10" in page
    for words in (
        "Verdict",
        "claim",
        "Figure 6",
        "11.16",
        "published",
        "Disagreements",
        "Not in the paper",
    ):
        assert words not in page, words
    assert files_below(tmp_path) > before


def test_settings_are_kept_apart_in_a_report(call: Call, tmp_path: Path) -> None:
    for settings in ((), ("--set", "batch_size=64", "--set", "schedule=Linear")):
        assert call("run", "spirals:TASK", *SMOKE, *settings).code == 0
    assert call("report", "--tasks", "spirals:TASK").code == 0
    page = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert "Nero (batch_size 64, schedule Linear())" in page
