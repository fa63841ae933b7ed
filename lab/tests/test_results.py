"""Finished runs are collected into one file per task and scale, each once, and read from there."""

import json
import math
from pathlib import Path

import pandas
import pytest
from command_line import Call, call, files_below
from made_up_runs import write_finals, write_run

from nero_lab.engine import records, results
from nero_lab.runner import RunConfig

__all__ = ["call"]  # a fixture

COLLECT = ("collect", "runs", "--results", "results")
COMMITTED = Path(__file__).parents[1] / "results"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a folder of three runs that are done, at two scales, and one that is not."""
    folder = tmp_path / "runs"
    write_finals(folder, "pong", {"nero": (1.0,), "sgd": (2.0,)})
    write_run(folder, RunConfig("pong", "smoke"), [3.0, math.inf], status="diverged")
    write_run(folder, RunConfig("pong", optimizer="adam"), [1.0], status="unfinished")
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "results" / "pong" / "cpu.jsonl"


def test_what_is_collected_is_what_was_recorded(call: Call, runs: Path, tmp_path: Path) -> None:
    ended = call(*COLLECT)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "added 3 runs to results; already there: 0, unfinished: 1\n"
    files = {"pong", "pong/cpu.jsonl", "pong/smoke.jsonl"}
    assert files_below(tmp_path / "results") == files
    done = [record for record in results.read_all(runs) if record.is_done]
    assert results.read_all(tmp_path / "results") == done
    assert [len(record.steps) for record in done] == [2, 2, 2]


def test_a_run_is_added_once(call: Call, runs: Path, file: Path) -> None:
    assert call(*COLLECT).code == 0
    before = file.read_bytes()
    assert call(*COLLECT).out.startswith("added 0 runs to results; already there: 3,")
    assert file.read_bytes() == before
    write_run(runs, RunConfig("pong", optimizer="adam"), [1.0])  # by now it has finished
    assert call(*COLLECT).out.startswith("added 1 runs to results; already there: 3,")
    assert file.read_bytes().startswith(before)
    names = [json.loads(line)["run"] for line in file.read_bytes().splitlines()]
    assert names == ["nero-lr0.01-seed0", "sgd-lr0.1-seed0", "adam-lr0.0001-seed0"]


def test_other_records_of_a_run_are_refused(call: Call, runs: Path, tmp_path: Path) -> None:
    assert call(*COLLECT).code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "results").rglob("*.jsonl")}
    write_run(runs, RunConfig("mnist-deep"), [1.0])  # which could be added
    write_run(runs, RunConfig("pong", optimizer="sgd"), [2.5])
    ended = call(*COLLECT)
    ended.assert_refused("pong/cpu.jsonl has different records for sgd-lr0.1-seed0 than", codes=[2])
    assert {path: path.read_bytes() for path in (tmp_path / "results").rglob("*.jsonl")} == before


def test_two_folders_of_runs_must_agree(call: Call, runs: Path, tmp_path: Path) -> None:
    for name, final in (("a", 1.0), ("b", 1.0), ("c", 5.0)):
        write_run(tmp_path / "many" / name, RunConfig("mnist-deep"), [final])
    ended = call("collect", "many", "--results", "results")
    ended.assert_refused(
        "mnist-deep/cpu.jsonl has different records for nero-lr0.001-seed0", codes=[2]
    )
    assert not (tmp_path / "results").exists()
    ended = call("collect", "many/a", "--results", "results")
    assert ended.out.startswith("added 1 runs")
    assert call("collect", "many/b", "--results", "results").out.startswith("added 0 runs")


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("runs/pong/cpu/x/records.jsonl", '{"loss": 1.0}\n', "x/records.jsonl cannot be read"),
        ("results/pong/cpu.jsonl", "no JSON\n", "line 1 of results/pong/cpu.jsonl is not a run"),
        ("results/pong/cpu.jsonl", '{"run": 3}\n', "is not a run: it has no 'end'"),
        ("results", "", "--results results cannot be a folder"),
    ],
)
def test_what_cannot_be_read_is_named(
    path: str, text: str, message: str, call: Call, runs: Path, tmp_path: Path
) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text)
    before = files_below(tmp_path)
    call(*COLLECT).assert_refused(message, codes=[2])
    assert files_below(tmp_path) == before


def test_records_in_the_wrong_place_are_refused(call: Call, runs: Path, tmp_path: Path) -> None:
    (runs / "pong" / "cpu").rename(runs / "pong" / "gpu")
    call(*COLLECT).assert_refused("is not in a run's folder", codes=[2])
    call("collect", "nowhere", "--results", "x").assert_refused("no records below nowhere")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("size", [1, 10, 500, -2])
def test_an_append_that_was_interrupted(size: int, call: Call, runs: Path, file: Path) -> None:
    """The runs before it are read, the report names the line, and another collect replaces it."""
    assert call(*COLLECT).code == 0
    whole = file.read_bytes()
    first, second = whole.splitlines(keepends=True)
    file.write_bytes(first + second[:size])
    found, skipped = results.read_below(file.parents[1])
    assert [record.config["optimizer"] for _, record in found] == ["nero", "nero"]
    assert list(skipped) == [file]
    assert skipped[file].startswith("line 2 is not a run")
    ended = call("report", "--results", "results")
    assert ended.code == 0
    assert "skipped results/pong/cpu.jsonl: line 2 is not a run" in ended.message
    assert call(*COLLECT).out.startswith("added 1 runs to results; already there: 2,")
    assert file.read_bytes() == whole


def test_a_last_newline_may_be_missing(call: Call, runs: Path, file: Path) -> None:
    assert call(*COLLECT).code == 0
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert call(*COLLECT).out.startswith("added 0 runs to results; already there: 3,")
    write_run(runs, RunConfig("pong", optimizer="adam"), [1.0])
    assert call(*COLLECT).out.startswith("added 1 runs to results; already there: 3,")
    assert file.read_bytes().startswith(whole)
    assert len(results.read_all(file.parents[1])) == 4


def test_a_broken_line_hides_no_other_run(call: Call, runs: Path, file: Path) -> None:
    assert call(*COLLECT).code == 0
    file.write_bytes(b'[1, 2]\n{"run": "x"}\n' + file.read_bytes())
    found, skipped = results.read_below(file.parent)
    assert len(found) == 3
    assert "line 1 is not a run" in skipped[file]
    assert "(and 1 more lines)" in skipped[file]
    with pytest.raises(ValueError, match=r"cpu\.jsonl: line 1 is not a run"):
        results.read_all(file.parent)


def test_the_report_is_the_same_from_runs_and_results(call: Call, tmp_path: Path) -> None:
    names = ("sgd", "nero", "adam")  # in results in this order, which is not that of the names
    for name in names:
        write_finals(tmp_path / "runs", "cifar-vgg11", {name: (10.0, 12.0)})
        assert call(*COLLECT).out.startswith("added 2 runs")
    assert call("report", "--results", "runs", "--out", "one").code == 0
    assert call("report", "--results", "results", "--out", "other").code == 0
    one, other = files_below(tmp_path / "one"), files_below(tmp_path / "other")
    assert one == other
    for name in one - {"figures"}:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_pandas_reads_a_file_in_one_line(call: Call, runs: Path, file: Path) -> None:
    assert call(*COLLECT).code == 0
    table = pandas.read_json(file, lines=True)
    assert list(table.run) == ["nero-lr0.01-seed0", "sgd-lr0.1-seed0"]
    assert list(table.lr) == [0.01, 0.1]
    assert list(table.end.str["status"]) == ["finished", "finished"]
    assert list(table.epoch.str[-1].str["valid_reward"]) == [1.0, 2.0]
    curves = table.explode("epoch")
    assert list(curves.epoch.str["valid_reward"]) == [2.0, 1.0, 4.0, 2.0]


@pytest.mark.parametrize("path", sorted(COMMITTED.rglob("*.jsonl")), ids=lambda p: p.parent.name)
def test_committed_results_are_whole(path: Path) -> None:
    """One file per task and scale, no run twice, and nothing that pandas or the lab cannot read."""
    assert len(path.relative_to(COMMITTED).parts) == 2
    table = pandas.read_json(path, lines=True)
    assert table.run.is_unique
    assert set(table.scale) == {path.stem}
    for line in path.read_bytes().splitlines(keepends=True):
        name, record = results.from_line(line)
        assert results.to_line(name, record) == line
        assert record.config["task"] == path.parent.name


def test_collected_runs_are_laid_out_as_they_were(runs: Path, file: Path, call: Call) -> None:
    assert call(*COLLECT).code == 0
    elsewhere = runs.with_name("elsewhere")
    assert results.lay_out(file.parents[1], elsewhere, scale="cpu") == 2
    for path in elsewhere.rglob("*.jsonl"):
        assert records.read(path) == records.read(runs / path.relative_to(elsewhere))
    before = file.read_bytes()
    assert results.collect(elsewhere, file.parents[1]).num_there == 2
    assert file.read_bytes() == before
    assert results.lay_out(file.parents[1], elsewhere, scale="cpu") == 0, "they are there already"
