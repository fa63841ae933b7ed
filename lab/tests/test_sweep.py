"""Sweeps with the real Ray, in processes of their own: whole, with a worker or the driver killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import hear_ctrl_c

from nero_lab.cli import main
from nero_lab.engine import records
from nero_lab.engine.errors import ConfigError
from nero_lab.engine.results import read_all
from nero_lab.runner import RunDirs, run
from nero_lab.runner.config import RunConfig
from nero_lab.sweep import grid
from nero_lab.sweep.table import Row, best, rows

LAB = Path(__file__).parents[1]
KILLED = RunConfig("mnist-reparam", "smoke", "nero", 0.01, seed=1, epochs=40)
EARLIER = RunConfig("mnist-reparam", "smoke", "nero", 0.01, seed=0, epochs=40)
TWO_SEEDS = ["--optimizers", "nero", "--lrs", "0.01", "--seeds", "2", "--epochs", "40"]


def command(runs_dir: Path, data_dir: Path, *options: str) -> list[str]:
    dirs = ["--runs-dir", str(runs_dir), "--data-dir", str(data_dir), "--no-tensorboard"]
    return ["sweep", "mnist-reparam", "--scale", "smoke", *options, *dirs]


def start(arguments: list[str], folder: Path) -> "subprocess.Popen[str]":
    # From another directory, as users do: workers must find the package all the same.
    path = os.pathsep.join([str(LAB), str(LAB.parent / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "nero_lab", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own, as a terminal gives it
        preexec_fn=hear_ctrl_c,
    )


def lines(runs_dir: Path, config: RunConfig) -> list[bytes]:
    path = runs_dir / config.name / records.FILE_NAME
    return path.read_bytes().splitlines() if path.exists() else []


def without_clock(runs_dir: Path, config: RunConfig) -> list[dict[str, Any]]:
    parsed = [json.loads(line) for line in lines(runs_dir, config)]
    return [{key: value for key, value in line.items() if key != "clock"} for line in parsed]


def stamp(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def wait_for(what: Callable[[], Any], process: "subprocess.Popen[str]") -> Any:
    deadline = time.monotonic() + 120
    while not (found := what()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def worker_of(runs_dir: Path, config: RunConfig) -> int:
    """Return the process that has the records of a run open."""
    path = runs_dir / config.name / records.FILE_NAME
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if link.readlink() == path:
                return int(link.parts[2])
        except OSError:
            continue  # gone in the meantime
    raise AssertionError(f"no process writes {path}")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Iterator[Path]:
    """Return a folder with the two runs, each made in one go, with as many threads as a worker."""
    runs_dir = tmp_path_factory.mktemp("unbroken")
    dirs = RunDirs(runs_dir, data_dir, tensorboard=False, quiet=True)
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for config in (EARLIER, KILLED):
        assert run(config, dirs).status == "finished"
    yield runs_dir
    torch.set_num_threads(num_threads)


@pytest.fixture
def half_done(tmp_path: Path, unbroken: Path) -> Path:
    """Return a folder with the first of the two runs."""
    shutil.copytree(unbroken / EARLIER.name, tmp_path / "runs" / EARLIER.name)
    return tmp_path / "runs"


def test_a_sweep_makes_every_run_and_a_second_one_only_reads(
    tmp_path: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--optimizers", "nero,adam", "--lrs", "0.003,0.01", "--seeds", "1"]
    process = start(command(Path("runs"), data_dir, *options), tmp_path)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    found = read_all(tmp_path / "runs")
    assert [record.status for record in found] == ["finished"] * 4
    assert {record.config["hardware"]["threads"] for record in found} == {1}
    assert out.count("1 finished") == 4
    assert out.count("best") == 2
    assert err.count("finished, train_accuracy") == 4
    assert "configuration" not in out.lower()  # Tune's own words
    assert not list((tmp_path / "runs").glob(".tune-*"))

    before = stamp(tmp_path)
    assert main(command(tmp_path / "runs", data_dir, *options)) == 0
    assert capsys.readouterr().out.splitlines()[:6] == out.splitlines()[:6]
    assert stamp(tmp_path) == before


@pytest.mark.slow
def test_a_run_whose_worker_is_killed_goes_on(
    half_done: Path, unbroken: Path, tmp_path: Path, data_dir: Path
) -> None:
    before = stamp(half_done / EARLIER.name)
    options = [*TWO_SEEDS, "--checkpoint-steps", "3"]
    process = start(command(half_done, data_dir, *options), tmp_path)
    wait_for(lambda: len(lines(half_done, KILLED)) > 40, process)
    header = lines(half_done, KILLED)[0]
    os.kill(worker_of(half_done, KILLED), signal.SIGKILL)
    assert records.read(half_done / KILLED.name / records.FILE_NAME).status == "unfinished"
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert err.count("its worker died") == 1
    assert stamp(half_done / EARLIER.name) == before
    assert lines(half_done, KILLED)[0] == header  # with the time of the first start
    assert without_clock(half_done, KILLED) == without_clock(unbroken, KILLED)


@pytest.mark.slow
def test_a_sweep_whose_driver_is_killed_goes_on_by_the_same_command(
    half_done: Path, unbroken: Path, tmp_path: Path, data_dir: Path
) -> None:
    before = stamp(half_done / EARLIER.name)
    arguments = command(half_done, data_dir, *TWO_SEEDS, "--checkpoint-steps", "3")
    process = start(arguments, tmp_path)
    wait_for(lambda: len(lines(half_done, KILLED)) > 40, process)
    header = lines(half_done, KILLED)[0]
    process.kill()
    process.communicate()
    process = start(arguments, tmp_path)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "runs to do: 1, " in err
    assert "1 already done" in err
    assert stamp(half_done / EARLIER.name) == before
    assert lines(half_done, KILLED)[0] == header
    assert without_clock(half_done, KILLED) == without_clock(unbroken, KILLED)


@pytest.mark.slow
def test_ctrl_c_ends_a_sweep_with_one_line(half_done: Path, tmp_path: Path, data_dir: Path) -> None:
    arguments = command(half_done, data_dir, *TWO_SEEDS, "--checkpoint-steps", "3")
    process = start(arguments, tmp_path)
    wait_for(lambda: len(lines(half_done, KILLED)) > 40, process)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert err.splitlines()[1:] == ["nero-lab sweep: interrupted; repeat the command to resume"], (
        err
    )
    # Not failed; its worker may have come to the end before it was stopped.
    found = records.read(half_done / KILLED.name / records.FILE_NAME)
    assert found.status in ("unfinished", "finished")
    assert not list(half_done.glob(".tune-*"))


def test_each_optimizer_has_its_own_grid_and_the_first_seed_comes_first() -> None:
    configs = grid("mnist-deep", optimizers=["nero", "adam"], num_seeds=2)
    assert [config.seed for config in configs] == [0] * 8 + [1] * 8
    rates = {config.lr for config in configs if config.optimizer == "adam"}
    assert rates == {1e-4, 1e-3, 1e-2, 1e-1}  # the paper's, on this task
    rates = {config.lr for config in grid("shakespeare", optimizers=["adam"])}
    assert rates == {1e-4, 3e-4, 1e-3, 3e-3, 1e-2}  # the optimizer's own
    assert len(grid("mnist-reparam", lrs=[0.1, 0.1], variants=["sigma-1", "sigma-100"])) == 2


@pytest.mark.parametrize("wrong", [{"optimizers": ["nera"]}, {"num_seeds": 0}, {"scale": "huge"}])
def test_a_grid_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        grid("mnist-deep", **wrong)


def test_options_of_the_recipe_hold_for_every_run() -> None:
    configs = grid("mnist-deep", lrs=[0.01, 0.1], options={"num_layers": 10})
    assert [config.recipe.options["num_layers"] for config in configs] == [10, 10]
    assert configs[0].name == "mnist-deep/cpu/nero-lr0.01-seed0-num_layers=10"


def test_a_rate_at_which_a_seed_diverged_is_not_the_best() -> None:
    safe = Row(None, "sgd", 0.1, (2.0, 2.2), Counter(finished=2))
    wild = Row(None, "sgd", 1.0, (1.0,), Counter(finished=1, diverged=1))
    assert best([safe, wild], higher_is_better=False) is safe
    assert best([wild], higher_is_better=False) is None


def test_runs_that_were_never_begun_are_unfinished() -> None:
    (row,) = rows([(config, None) for config in grid("mnist-deep", lrs=[0.1], num_seeds=3)])
    assert row.statuses == {"unfinished": 3}
    assert row.scores == ()
