"""``nero-lab time``: steps in turns, on a machine that does nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_up_runs import write_times

from nero_lab.cli import main
from nero_lab.report.times import StepTimes, read_times

WORDS = ["time", "mnist-deep", "--scale", "smoke", "--rounds", "3", "--optimizers"]


def test_every_optimizer_is_timed(data_dir: Path, tmp_path: Path) -> None:
    # Schedule-Free refuses to step unless it was told to train.
    words = [*WORDS, "nero,adam,schedule-free", "--max-load", "1", "--data-dir", str(data_dir)]
    assert main([*words, "--runs-dir", str(tmp_path), "--variant", "torch-init"]) == 0
    times = json.loads((tmp_path / "mnist-deep/smoke/torch-init-times.json").read_text())
    assert times["seconds"].keys() == {"nero", "adam", "schedule-free"}
    for low, median, high in times["seconds"].values():
        assert 0 < low <= median <= high
    assert times["hardware"]["cores"]


def test_times_that_were_not_in_turns_are_not_mixed(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--max-load", "1", "--data-dir", str(data_dir), "--runs-dir", str(tmp_path)]
    assert main([*WORDS, "nero,adam", *words]) == 0
    assert main([*WORDS, "sgd,nero,adam", *words]) == 0
    assert main([*WORDS, "nero", *words]) == 2
    assert "time all of them together" in capsys.readouterr().err


def test_a_busy_machine_is_refused(data_dir: Path, tmp_path: Path) -> None:
    words = [*WORDS, "nero", "--data-dir", str(data_dir), "--max-load", "0.001"]
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:  # in a process of its own, which does not count what its parent started as its own work
        command = [sys.executable, "-m", "nero_lab", *words, "--runs-dir", str(tmp_path)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        busy.kill()
        busy.wait()
    assert ended.returncode == 2
    assert "of the CPU during timing; repeat it on an idle machine" in ended.stderr
    assert not list(tmp_path.rglob("*times.json"))


def test_times_of_a_busy_machine_and_foreign_files_are_not_read(tmp_path: Path) -> None:
    seconds = {"nero": [1, 2, 3]}
    write_times(tmp_path / "idle-times.json", "pong", seconds, load_of_others=0.04)
    busy = {"changes": "busy", "load_of_others": 0.4}
    write_times(tmp_path / "busy-times.json", "pong", seconds, **busy)
    (tmp_path / "other-times.json").write_text("[]")
    found, skipped = read_times(tmp_path)
    assert found == {("pong", "cpu", ""): StepTimes({"nero": 2.0}, "a CPU, threads: 1")}
    assert {path.name for path in skipped} == {"busy-times.json", "other-times.json"}
