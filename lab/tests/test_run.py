"""A run: its records, its end, and its going on after an interruption, to the bit."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from nero_lab.cli import main
from nero_lab.engine import records
from nero_lab.engine.errors import ConfigError, DataError
from nero_lab.runner import RunDirs, run
from nero_lab.runner.config import RunConfig
from nero_lab.tasks import TASKS
from tests.distributed.ranks import on_ranks


class InterruptedAt:
    """Stop a run at one of its steps, as Ctrl-C would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, step: int, averages: Mapping[str, float]) -> None:
        if step == self.step:
            raise KeyboardInterrupt

    def on_epoch(self, epoch: int, scores: Mapping[str, float]) -> None:
        pass


def dirs(folder: Path, data_dir: Path, checkpoint_steps: int = 500) -> RunDirs:
    return RunDirs(folder, data_dir, checkpoint_steps, tensorboard=False, quiet=True)


def read(folder: Path) -> records.RunRecord:
    record = records.read(folder / "records.jsonl")
    assert record is not None
    return record


def timeless(path: Path) -> list[dict[str, Any]]:
    """Return the records of a run without what depends on the clock."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "clock"} for line in lines]


def assert_same(one: Path, other: Path) -> None:
    """Two runs have equal records, and equal bits in whatever they saved."""
    assert timeless(one / "records.jsonl") == timeless(other / "records.jsonl")
    states = [torch.load(folder / "checkpoint.pt", weights_only=True) for folder in (one, other)]
    for state in states:
        state.pop("seconds")
        state.pop("records_size")  # times have more or fewer digits
        state.pop("peak_memory_bytes")
    assert_equal(*states)


def assert_equal(one: Any, other: Any, where: str = "checkpoint") -> None:
    """Compare nested mappings and lists of tensors and plain values, to the bit."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_equal(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), where
        for index, pair in enumerate(zip(one, other, strict=True)):
            assert_equal(*pair, f"{where}[{index}]")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    else:
        assert one == other, where


def assert_resumes_to_the_bit(config: RunConfig, folder: Path, data_dir: Path) -> None:
    """Interrupt a run in its second half, some steps after its last checkpoint, and go on."""
    whole = run(config, dirs(folder / "whole", data_dir))
    assert whole.status == "finished"
    assert whole.end is not None
    stop = whole.end["step"] * 3 // 4 + 1
    often = dirs(folder / "broken", data_dir, checkpoint_steps=max(stop // 3, 1))
    with pytest.raises(KeyboardInterrupt):
        run(config, often, progress=InterruptedAt(stop))
    assert read(folder / "broken" / config.name).end is None
    run(config, often)
    assert_same(folder / "whole" / config.name, folder / "broken" / config.name)


_SLOW = ("cgan", "cifar-resnet18", "cifar-vgg11", "pong")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in _SLOW)) for name in TASKS]
)
def test_an_interrupted_run_ends_as_an_unbroken_one(
    name: str, data_dir: Path, tmp_path: Path
) -> None:
    assert_resumes_to_the_bit(RunConfig(name, scale="smoke"), tmp_path, data_dir)


@pytest.mark.parametrize(
    "optimizer",
    ["adamw", "lamb-balanced", "muon", "normuon", "soap", "schedule-free", "prodigy", "madam"],
)
def test_every_kind_of_optimizer_resumes(optimizer: str, data_dir: Path, tmp_path: Path) -> None:
    config = RunConfig("shakespeare", scale="smoke", optimizer=optimizer)
    assert_resumes_to_the_bit(config, tmp_path, data_dir)


@pytest.mark.slow
def test_a_killed_run_ends_as_an_unbroken_one(data_dir: Path, tmp_path: Path) -> None:
    config = RunConfig("mnist-deep", scale="smoke", epochs=12)
    run(config, dirs(tmp_path / "whole", data_dir))
    folder = tmp_path / "broken"
    command = [sys.executable, *_command(config, folder, data_dir)]
    path = folder / config.name / "records.jsonl"
    for num_lines in (5, 55):  # during the first epoch, and a later one
        process = subprocess.Popen(command, env=_environment())
        while process.poll() is None and _num_lines(path) < num_lines:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it had ended before"
    subprocess.run(command, env=_environment(), check=True)
    assert_same(tmp_path / "whole" / config.name, folder / config.name)


_WORDS = {"dropout": 0.0, "summed_loss": False}
# And how near they come: gradients are averages of two halves, which round differently.
TWO_RANKS = [
    (RunConfig("mnist-deep", "smoke"), 1e-3),
    (RunConfig("fineweb-gpt2", "smoke"), 1e-3),
    # Each rank would balance its own part of the experts.
    (RunConfig("shakespeare-moe", "smoke", options={"balance": 0.0}), 1e-3),
    # Ranks with unequal numbers of words.
    (RunConfig("multi30k", "smoke", "sgd", 1.0, options=_WORDS), 1e-4),
    # A sum over 200 words: at a rate of 0.005 the rounding grows to half a percent in two epochs.
    (RunConfig("multi30k", "smoke", "sgd", 0.001, options=_WORDS | {"summed_loss": True}), 1e-4),
]


def test_two_ranks_train_as_one(data_dir: Path, tmp_path: Path) -> None:
    configs = [config for config, _ in TWO_RANKS]
    for config in configs:
        run(config, dirs(tmp_path / "one", data_dir))
    _run_on_two_ranks(configs, tmp_path / "two", data_dir)
    for config, tolerance in TWO_RANKS:
        one, two = (read(tmp_path / ranks / config.name) for ranks in ("one", "two"))
        assert two.config["world_size"] == 2
        for mine, theirs in zip(one.epochs, two.epochs, strict=True):
            for loss in ("train_loss", "valid_loss"):
                assert theirs[loss] == pytest.approx(mine[loss], rel=tolerance), config.name


def test_two_ranks_go_on_where_they_were_interrupted(data_dir: Path, tmp_path: Path) -> None:
    config = RunConfig("mnist-deep", scale="smoke", epochs=4)
    _run_on_two_ranks([config], tmp_path / "whole", data_dir)
    # A checkpoint within an epoch, when each rank has sums of its own.
    path = tmp_path / "broken" / config.name / "records.jsonl"
    command = _command(config, tmp_path / "broken", data_dir)
    ranks = [
        subprocess.Popen([sys.executable, *command], env=_environment() | variables)
        for variables in _torchrun_variables(2)
    ]
    while _num_lines(path) < 25 and all(process.poll() is None for process in ranks):
        time.sleep(0.001)
    for process in ranks:
        process.kill()
    assert [process.wait() for process in ranks] == [-signal.SIGKILL] * 2, "it had ended before"
    step = torch.load(path.with_name("checkpoint.pt"), weights_only=True)["step"]
    assert step % 10, "the test wants a checkpoint within an epoch"
    with pytest.raises(ConfigError, match="world_size = 2, not 1"):
        run(config, dirs(tmp_path / "broken", data_dir))
    _run_on_two_ranks([config], tmp_path / "broken", data_dir)
    assert_same(tmp_path / "whole" / config.name, tmp_path / "broken" / config.name)


def test_ranks_that_cannot_share_a_batch_are_refused(data_dir: Path, tmp_path: Path) -> None:
    config = RunConfig("mnist-deep", scale="smoke")
    command = [*_torchrun(3), *_command(config, tmp_path, data_dir)]
    ended = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    assert ended.returncode
    assert "a batch of 250 examples cannot be split equally across 3 ranks" in ended.stderr


def test_a_finished_run_is_only_read(data_dir: Path, tmp_path: Path) -> None:
    config = RunConfig("shakespeare", scale="smoke")
    run(config, dirs(tmp_path, data_dir))
    before = (tmp_path / config.name / "records.jsonl").stat()
    again = run(config, dirs(tmp_path, data_dir))
    assert (tmp_path / config.name / "records.jsonl").stat() == before
    assert again.status == "finished"


def test_divergence_is_a_result(data_dir: Path, tmp_path: Path) -> None:
    config = RunConfig("mnist-deep", scale="smoke", optimizer="sgd", lr=1e6)
    record = run(config, dirs(tmp_path, data_dir))
    assert record.status == "diverged"
    assert record.end is not None
    assert "loss is" in record.end["message"]


def test_a_failure_is_recorded_and_raised(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig("shakespeare", scale="smoke")

    def fail(*args: object) -> None:
        raise RuntimeError("the disk is full")

    experiment = config.task_spec.build
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "evaluate", fail)
        with pytest.raises(RuntimeError, match="disk is full"):
            run(config, dirs(tmp_path, data_dir))
    record = read(tmp_path / config.name)
    assert record.status == "failed"
    assert record.end is not None
    assert record.end["message"] == "RuntimeError: the disk is full"
    assert run(config, dirs(tmp_path, data_dir)).status == "finished"  # and can be tried again


def test_what_the_user_must_put_right_leaves_nothing(data_dir: Path, tmp_path: Path) -> None:
    config = RunConfig("cifar-resnet18", scale="smoke", optimizer="schedule-free")
    with pytest.raises(ConfigError, match="running statistics of batch norm"):
        run(config, dirs(tmp_path / "runs", data_dir))
    assert not (tmp_path / "runs").exists()


def test_a_mistake_before_the_first_step_is_recorded(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig("shakespeare", scale="smoke")
    with monkeypatch.context() as patch:
        patch.setattr(config.task_spec.build, "attach", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(config, dirs(tmp_path, data_dir))
    record = read(tmp_path / config.name)
    assert record.status == "failed"
    assert record.end is not None
    assert "ZeroDivisionError" in record.end["traceback"]
    assert run(config, dirs(tmp_path, data_dir)).status == "finished"  # and can be tried again


def test_a_header_that_was_cut_short_is_begun_again(data_dir: Path, tmp_path: Path) -> None:
    config = RunConfig("shakespeare", scale="smoke")
    path = tmp_path / config.name / "records.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"kind": "run", "ta')
    assert run(config, dirs(tmp_path, data_dir)).status == "finished"


def test_records_that_are_shorter_than_their_checkpoint_are_refused(
    data_dir: Path, tmp_path: Path
) -> None:
    config = RunConfig("shakespeare", scale="smoke")
    with pytest.raises(KeyboardInterrupt):
        run(config, dirs(tmp_path, data_dir, checkpoint_steps=7), progress=InterruptedAt(30))
    path = tmp_path / config.name / "records.jsonl"
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    with pytest.raises(ConfigError, match=f"remove the folder {path.parent}"):
        run(config, dirs(tmp_path, data_dir))
    path.unlink()
    with pytest.raises(ConfigError, match=f"remove the folder {path.parent}"):
        run(config, dirs(tmp_path, data_dir))


def test_size_of_records_is_right_before_the_first_one_of_a_resumed_run(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("kept\ndropped\n")
    recorder = records.Recorder(path, size=5, tensorboard=False)
    assert recorder.sync() == 5
    recorder.close()
    assert path.read_text() == "kept\n"


def test_a_restart_that_fails_destroys_nothing(data_dir: Path, tmp_path: Path) -> None:
    config = RunConfig("shakespeare", scale="smoke")
    run(config, dirs(tmp_path / "whole", data_dir))
    often = dirs(tmp_path / "broken", data_dir, checkpoint_steps=7)
    with pytest.raises(KeyboardInterrupt):
        run(config, often, progress=InterruptedAt(30))
    damaged = tmp_path / "data" / "tinyshakespeare" / "input.txt"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("not Shakespeare")
    with pytest.raises(DataError, match="not the published file"):
        run(config, dirs(tmp_path / "broken", tmp_path / "data"))
    run(config, often)
    assert_same(tmp_path / "whole" / config.name, tmp_path / "broken" / config.name)


def test_muon_refuses_a_network_without_hidden_matrices(data_dir: Path, tmp_path: Path) -> None:
    config = RunConfig("cifar-vgg11", scale="smoke", optimizer="muon")
    with pytest.raises(ValueError, match="outer_layers"):
        run(config, dirs(tmp_path, data_dir))


def test_optimizer_beside_the_command_is_found(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside.py").write_text(
        "import torch\n\ndef build(model, lr):\n    return torch.optim.RAdam(model.parameters(), lr)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = "run shakespeare --scale smoke --epochs 1 --optimizer beside:build --no-tensorboard"
    assert main([*words.split(), "--data-dir", str(data_dir)]) == 0
    assert len(list(tmp_path.glob("runs/**/records.jsonl"))) == 1


def test_the_test_split_is_scored_once_at_the_end(data_dir: Path, tmp_path: Path) -> None:
    record = run(RunConfig("wikitext2", scale="smoke"), dirs(tmp_path, data_dir))
    assert ["test_perplexity" in epoch for epoch in record.epochs] == [False, True]
    assert record.last("test_perplexity") != record.last("valid_perplexity")


def test_records_say_where_they_come_from(data_dir: Path, tmp_path: Path) -> None:
    config = RunConfig("mnist-deep", scale="smoke", seed=3)
    record = run(config, dirs(tmp_path, data_dir))
    for key in ("versions", "commit", "hardware", "recipe", "num_parameters"):
        assert record.config[key], key
    assert record.config["command"] == config.command
    assert record.end is not None
    assert record.end["clock"].keys() == {"seconds", "seconds_per_step", "peak_memory_bytes"}


def test_another_configuration_under_one_name_is_refused(data_dir: Path, tmp_path: Path) -> None:
    config = RunConfig("shakespeare", scale="smoke")
    run(config, dirs(tmp_path, data_dir))
    path = tmp_path / config.name / "records.jsonl"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1', 1))
    with pytest.raises(ConfigError, match=r"seed = 1, not 0; remove the folder .*runs-dir"):
        run(config, dirs(tmp_path, data_dir))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"task": "mnist"}, "unknown task 'mnist'; choose from: .*mnist-reparam"),
        ({"task": "mnist-deep", "optimizer": "adan"}, "unknown optimizer 'adan'"),
        ({"task": "mnist-deep", "scale": "huge"}, "unknown scale 'huge'"),
        ({"task": "mnist-deep", "options": {"depth": 3}}, "unknown option 'depth'"),
        ({"task": "mnist-deep", "epochs": 0}, "at least one epoch, not 0"),
        ({"task": "mnist-deep", "lr": -0.1}, "not negative, not -0.1"),
        ({"task": "mnist-deep", "seed": 2**32}, "between 0 and 4294967295"),
    ],
)
def test_what_is_not_there_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RunConfig(**fields)


def _run_on_two_ranks(configs: Sequence[RunConfig], folder: Path, data_dir: Path) -> None:
    """Make runs one after the other, as two ranks of torchrun would."""
    commands = [_command(config, folder, data_dir)[2:] for config in configs]
    on_ranks(2, _make_runs, commands)


def _make_runs(commands: Sequence[Sequence[str]]) -> None:
    os.environ.update(TORCHELASTIC_RUN_ID="none", RANK=str(dist.get_rank()), WORLD_SIZE="2")
    for command in commands:
        assert main(command) == 0


def _torchrun(num_ranks: int) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*launcher, "--nproc-per-node", str(num_ranks)]


def _torchrun_variables(num_ranks: int) -> list[dict[str, str]]:
    """Return what torchrun tells each rank, for ranks that are started, and killed, without it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(num_ranks)}
    return [
        {**shared, "TORCHELASTIC_RUN_ID": "none", "RANK": str(rank), "LOCAL_RANK": str(rank)}
        for rank in range(num_ranks)
    ]


def _command(config: RunConfig, folder: Path, data_dir: Path) -> list[str]:
    options = ["--quiet", "--no-tensorboard", "--checkpoint-steps", "3"]
    options += ["--runs-dir", str(folder), "--data-dir", str(data_dir)]
    return ["-m", "nero_lab", *config.command.split()[1:], *options]


def _num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _environment() -> dict[str, str]:
    root = Path(__file__).parents[2]
    paths = [str(root / "lab"), str(root / "src"), os.environ.get("PYTHONPATH", "")]
    # One thread, as in this process under a parallel test run: sums depend on how they are divided.
    threads = str(torch.get_num_threads())
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": threads}
