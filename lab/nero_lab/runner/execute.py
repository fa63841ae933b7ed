"""One run, from its configuration to its last record."""

import contextlib
import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from filelock import FileLock

from nero_lab.engine import checkpoint, records
from nero_lab.engine.errors import ConfigError, DataError
from nero_lab.engine.folders import check_can_be_made
from nero_lab.engine.loop import DivergedError, Loop, Stop, StoppedError
from nero_lab.engine.progress import Progress, ProgressBar, Silent
from nero_lab.engine.provenance import provenance
from nero_lab.engine.records import Recorder, RunRecord
from nero_lab.engine.task import Setting
from nero_lab.runner.building import build, check_divides
from nero_lab.runner.config import RunConfig
from nero_lab.runner.history import as_recorded, is_done


@dataclass(frozen=True)
class RunDirs:
    """Where a run reads and writes, and what it writes besides records.

    Args:
        runs_dir: the folder of all runs; a run has a folder of its own below it.
        data_dir: the folder of all data sets.
        checkpoint_steps: steps between two checkpoints.
        tensorboard: write TensorBoard's files beside the records.
        quiet: show no progress.
    """

    runs_dir: Path
    data_dir: Path
    checkpoint_steps: int = 500
    tensorboard: bool = True
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.checkpoint_steps < 1:
            raise ConfigError(
                f"there must be at least 1 step between checkpoints, not {self.checkpoint_steps}"
            )


def run(
    config: RunConfig, dirs: RunDirs, progress: Progress | None = None, *, stop: Stop | None = None
) -> RunRecord:
    """Run a configuration, or what is left of it, and return its records.

    Finished runs are not rerun. An interrupted run resumes from its checkpoint. A run that diverges is
    recorded as diverged; one that fails is recorded as failed, and raises. One that cannot begin because of
    its configuration or its data raises and leaves nothing behind.

    Args:
        config: what to run.
        dirs: where to read and write.
        progress: receives steps and epochs; by default a progress bar, unless ``dirs.quiet``.
        stop: a rule that may end the run after an epoch; it is then recorded as stopped, and not rerun.
    """
    path = dirs.runs_dir / config.name / records.FILE_NAME
    check_can_be_made(dirs.runs_dir, option="--runs-dir")
    with _process_group() as (rank, world_size, device):
        check_divides(config.recipe.batch_size, world_size)
        where = device, rank, world_size
        setting = Setting(config.recipe, config.seed, dirs.data_dir, *where, config.optimizer)
        if not _is_done(config, dirs, setting):
            _run(config, setting, path, dirs, progress, stop)
        if world_size > 1:
            dist.barrier()  # until the first rank has written the end
        record = records.read(path)
    assert record is not None
    return record


def _run(
    config: RunConfig,
    setting: Setting,
    path: Path,
    dirs: RunDirs,
    progress: Progress | None,
    stop: Stop | None,
) -> None:
    # Before the folder is created, so that a user error leaves nothing behind.
    loop = _build(config, setting, path, dirs, stop)
    with _locked(path.parent, setting.rank):
        if _is_done(config, dirs, setting):  # by another process, which held the lock until now
            return
        size = loop.resume()
        recorder = None
        if setting.rank == 0:
            recorder = Recorder(path, size=size or 0, step=loop.step, tensorboard=dirs.tensorboard)
            if not size:
                recorder.write("run", {**as_recorded(config), **_circumstances(config, loop)})
        _train(config, loop, recorder, progress, quiet=dirs.quiet or setting.rank > 0)


def _build(
    config: RunConfig, setting: Setting, path: Path, dirs: RunDirs, stop: Stop | None
) -> Loop:
    """Set up a run; record the failure unless it is a user error."""
    try:
        experiment, optimizers = build(config, setting)
    except (ConfigError, DataError):
        raise
    except Exception as error:
        if setting.rank == 0:
            _record_failure(path, config, dirs, error)
        raise
    return Loop(
        experiment,
        optimizers,
        setting,
        checkpoint_path=path.with_name(checkpoint.FILE_NAME),
        checkpoint_steps=dirs.checkpoint_steps,
        stop=stop,
    )


def _train(
    config: RunConfig,
    loop: Loop,
    recorder: Recorder | None,
    progress: Progress | None,
    *,
    quiet: bool,
) -> None:
    bar = None
    if progress is None and quiet:
        progress = Silent()
    elif progress is None:
        progress = bar = ProgressBar(config.name, loop.num_steps, loop.step)
    ending: dict[str, Any] | None = None  # an interrupted run has no end: it can resume
    try:
        loop.train(recorder, progress)
        ending = {"status": "finished"}
    except DivergedError as error:
        ending = {"status": "diverged", "message": str(error)}
    except StoppedError as error:
        ending = {"status": "stopped", "message": str(error)}
    except Exception as error:
        ending = _failure(error)
        raise
    finally:
        if bar:
            bar.close()
        if recorder and ending:
            recorder.write("end", {**ending, **loop.summary(), "clock": _clock(loop)})
        if recorder:
            recorder.close()


def _record_failure(path: Path, config: RunConfig, dirs: RunDirs, error: Exception) -> None:
    """Record a run that could not start, unless an interrupted or finished run has records there."""
    with _locked(path.parent, rank=0):
        if path.with_name(checkpoint.FILE_NAME).exists() or is_done(config, dirs.runs_dir):
            return
        recorder = Recorder(path, tensorboard=False)
        recorder.write("run", {**as_recorded(config), "command": config.command})
        recorder.write("end", _failure(error))
        recorder.close()


def _failure(error: Exception) -> dict[str, Any]:
    return {
        "status": "failed",
        "message": f"{type(error).__name__}: {error}",
        "traceback": traceback.format_exc(limit=-5),
    }


def _clock(loop: Loop) -> dict[str, Any]:
    return {
        "seconds": round(loop.seconds, 1),
        "seconds_per_step": round(loop.median_step_seconds(), 6),
        "peak_memory_bytes": loop.peak_memory_bytes,
    }


def _circumstances(config: RunConfig, loop: Loop) -> dict[str, Any]:
    players = loop.experiment.players.values()
    return {
        "command": config.command,
        "num_parameters": sum(p.numel() for player in players for p in player.parameters()),
        "steps_per_epoch": loop.experiment.steps_per_epoch,
        "world_size": loop.setting.world_size,
        **provenance(loop.setting.device),
        "clock": {"started": datetime.now(timezone.utc).isoformat(timespec="seconds")},
    }


def _is_done(config: RunConfig, dirs: RunDirs, setting: Setting) -> bool:
    """Return whether there is nothing left to do; the first rank decides for all."""
    answers: list[Any] = [None]
    if setting.rank == 0:  # it alone may have waited for another process to be done
        answers = [is_done(config, dirs.runs_dir, world_size=setting.world_size)]
    if setting.world_size > 1:
        dist.broadcast_object_list(answers, src=0)
    return bool(answers[0])


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the folder {folder} cannot be created: {error.strerror}; choose another --runs-dir"
        ) from error


@contextlib.contextmanager
def _locked(folder: Path, rank: int) -> Iterator[None]:
    """Hold the lock of a run, so that one process (or one group of ranks) works on it at a time."""
    if rank == 0:
        _make(folder)
        with FileLock(folder / "lock"):
            yield
    else:
        yield


@contextlib.contextmanager
def _process_group() -> Iterator[tuple[int, int, torch.device]]:
    """Join the other ranks if torchrun started this process; yield rank, number of ranks, device."""
    on_gpu = torch.cuda.is_available()
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield 0, 1, torch.device("cuda" if on_gpu else "cpu")
        return
    device = torch.device("cpu")
    if on_gpu:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    is_ours = not dist.is_initialized()  # a script that makes several runs joins once
    if is_ours:
        dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        if is_ours:
            dist.destroy_process_group()
