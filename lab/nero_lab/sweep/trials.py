"""Sweeps: a grid of runs as trials of Ray Tune, on one machine or on a cluster.

The state of a run is in its own folder: records and a checkpoint. Tune only decides what runs where, and
restarts a trial whose worker died; the run then resumes from its checkpoint. So no state of Tune is worth
keeping: the same command resumes a sweep that was stopped, because finished runs are not rerun.
"""

import argparse
import contextlib
import dataclasses
import logging
import math
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ray
import torch
from ray import tune
from rich.console import Console

from nero_lab.data import files
from nero_lab.engine.errors import ConfigError, in_one_line
from nero_lab.engine.folders import check_can_be_made
from nero_lab.engine.references import is_reference
from nero_lab.runner.config import RunConfig
from nero_lab.runner.execute import RunDirs, run
from nero_lab.runner.history import existing_record, is_done
from nero_lab.sweep.grids import grid
from nero_lab.sweep.progress import SweepProgress
from nero_lab.sweep.table import print_table
from nero_lab.sweep.widening import MAX_ADDED, wider

MAX_FAILURES = 3  # how often a run is started again after its worker died

_RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends the command, as it does without Ray
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # our records say more
}


def sweep_command(args: argparse.Namespace, dirs: RunDirs) -> int:
    """Make the runs that ``nero-lab sweep`` asks for, print a table, and return the exit code."""
    if args.cpus_per_run < 1:
        raise ConfigError(f"--cpus-per-run must be at least 1, not {args.cpus_per_run}")
    if not 0 <= args.gpus_per_run < math.inf:
        raise ConfigError(
            f"--gpus-per-run must be finite and nonnegative, not {args.gpus_per_run:g}"
        )
    if args.widen is not None and args.widen < 0:
        raise ConfigError(f"--widen must be at least 0, not {args.widen}")
    check_can_be_made(dirs.runs_dir, option="--runs-dir")
    configs = grid(
        args.task,
        scale=args.scale,
        optimizers=args.optimizers,
        lrs=args.lrs,
        num_seeds=args.seeds,
        variants=args.variants,
        options=dict(args.set),
        epochs=args.epochs,
    )
    # Workers have other working directories.
    runs_dir, data_dir = dirs.runs_dir.absolute(), dirs.data_dir.absolute()
    dirs = dataclasses.replace(dirs, runs_dir=runs_dir, data_dir=data_dir)
    failures: dict[str, str] = {}
    num_rates = Counter(name for name, _ in {(c.optimizer, c.lr) for c in configs})
    num_added = _num_added(args)
    max_rates = max(num_rates.values()) + num_added
    todo = configs
    while todo:
        rest = [config for config in todo if not is_done(config, dirs.runs_dir)]
        if rest:
            data = configs[0].task_spec.data
            if data in files.DATA_SETS:  # report a missing file once, not from every worker
                files.folder(data, dirs.data_dir)
            failures |= _run_all(rest, dirs, args, num_done=len(configs) - len(rest))
        found = [(config, existing_record(config, dirs.runs_dir)) for config in configs]
        todo = wider(found, max_rates=max_rates) if num_added else []
        configs = configs + todo
    print_table(found)
    own = f" --tasks {args.task}" if is_reference(args.task) else ""
    page = f"nero-lab report --results {args.runs_dir}{own}"
    print(f"records are in {args.runs_dir}; to make a report: {page}")
    console = Console(stderr=True)
    for name, message in failures.items():
        console.print(f"{name} failed: {message}", markup=False, highlight=False, soft_wrap=True)
    num_left = len(configs) - sum(is_done(config, dirs.runs_dir) for config in configs)
    if num_left:
        console.print(f"runs left: {num_left}; repeat the command to resume them", highlight=False)
    return 1 if num_left else 0


def _num_added(args: argparse.Namespace) -> int:
    """Return how many rates may be added: none to rates that the user chose, unless asked for."""
    if args.widen is not None:
        return int(args.widen)
    return 0 if args.lrs else MAX_ADDED


def _run_all(
    configs: Sequence[RunConfig], dirs: RunDirs, args: argparse.Namespace, *, num_done: int
) -> dict[str, str]:
    """Run configurations as trials, and return why those failed that did, by name."""
    dirs.runs_dir.mkdir(parents=True, exist_ok=True)
    needs = {"cpu": args.cpus_per_run, "gpu": args.gpus_per_run}
    progress = SweepProgress(
        {config.name: config for config in configs}, num_done, quiet=dirs.quiet
    )
    with (
        _cluster(args.address),
        # Below the runs, because all nodes must see it.
        tempfile.TemporaryDirectory(prefix=".tune-", dir=dirs.runs_dir) as storage,
    ):
        progress.begin(_num_at_once(needs, is_local=args.address is None))
        trial = tune.with_parameters(
            _trial, configs={config.name: config for config in configs}, dirs=dirs, needs=needs
        )
        tuner = tune.Tuner(
            tune.with_resources(trial, needs),
            param_space={"run": tune.grid_search([config.name for config in configs])},
            # A fresh process for each run, so that peak memory is its own.
            tune_config=tune.TuneConfig(reuse_actors=False),
            run_config=tune.RunConfig(
                storage_path=storage,
                failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
                callbacks=[progress],
                verbose=0,
            ),
        )
        with contextlib.redirect_stdout(None):  # Tune prints a banner even with verbose=0
            tuner.fit()
    return progress.failures


def _trial(
    config: Mapping[str, Any],
    configs: Mapping[str, RunConfig],
    dirs: RunDirs,
    needs: Mapping[str, float],
) -> dict[str, Any]:
    """Run one configuration in a worker of Ray; what is returned is the last result of the trial."""
    # In this thread, which is the one that trains: OpenMP keeps the number for each thread.
    torch.set_num_threads(int(needs["cpu"]))
    if not needs["gpu"]:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray leaves the GPUs of others in sight
    wanted = configs[config["run"]]
    try:
        record = run(wanted, dirs, _ReportToTune())
    except Exception as error:  # an error of the run itself: a restart would not help
        return {"status": "failed", "message": in_one_line(error)}
    metric = wanted.task_spec.metric.name
    return {"status": record.status, metric: record.last(metric), "epoch": wanted.recipe.epochs}


class _ReportToTune:
    """Report the scores of each epoch to Tune."""

    def on_step(self, step: int, averages: Mapping[str, float]) -> None:
        """Do nothing."""

    def on_epoch(self, epoch: int, scores: Mapping[str, float]) -> None:
        """Report the scores."""
        tune.report({"epoch": epoch, **scores})


@contextlib.contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    for name, value in _RAY_SETTINGS.items():
        os.environ.setdefault(name, value)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        # Not a cluster that happens to run here. Runs do not use Ray's object store.
        ray.init("local", include_dashboard=False, object_store_memory=2**27, **quiet)
    else:
        try:
            ray.init(address, **quiet)
        except ConnectionError as error:
            raise ConfigError(
                f"{error}; if it asks for a token, set RAY_AUTH_MODE and the token as on its nodes"
            ) from error
    # SweepProgress prints what goes wrong.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        ray.shutdown()


def _num_at_once(needs: Mapping[str, float], *, is_local: bool) -> int:
    resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
    there = {name: resources.get(name.upper(), 0) for name in needs}
    for name, number in needs.items():
        if is_local and number > there[name]:  # a cluster may grow
            raise ConfigError(
                f"--{name}s-per-run is {number:g}, but there are {there[name]:g} {name.upper()}s here"
            )
    return int(min(there[name] // number for name, number in needs.items() if number))
