"""Progress of a sweep in the terminal: one line per run that ends, with the time left."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray.tune import Callback
from rich.console import Console

from nero_lab.runner.config import RunConfig


class SweepProgress(Callback):
    """Print how trials end, as Tune reports them, and keep why runs failed.

    Args:
        configs: the runs, by name.
        num_done: runs of the sweep that were done before.
        quiet: print nothing.
    """

    def __init__(self, configs: Mapping[str, RunConfig], num_done: int, *, quiet: bool) -> None:
        self.failures: dict[str, str] = {}
        self._configs = configs
        self._num_done = num_done
        self._quiet = quiet
        self._num_ended = 0
        self._began = time.monotonic()

    def begin(self, num_at_once: int) -> None:
        """Print how many runs there are."""
        before = f", {self._num_done} already done" if self._num_done else ""
        self._print(f"runs to do: {len(self._configs)}, {num_at_once} at a time{before}")
        self._began = time.monotonic()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Print how a run ended; a run that raised has returned its message to Tune."""
        name, result = trial.config["run"], trial.last_result
        metric = self._configs[name].task_spec.metric
        if result["status"] == "failed":
            self.failures[name] = result["message"]
            self._ended(name, f"failed: {result['message']}", trials)
        else:
            score = f"{metric.name} {result[metric.name]:.4g}"
            self._ended(name, f"{result['status']}, {score}", trials)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Print that a worker died."""
        self._print(f"{trial.config['run']}: resuming from its checkpoint; {_worker_error(trial)}")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Print that a worker died too often."""
        name = trial.config["run"]
        self.failures[name] = f"gave up after {trial.num_failures} attempts; {_worker_error(trial)}"
        self._ended(name, self.failures[name], trials)

    def _ended(self, name: str, how: str, trials: list[Any]) -> None:
        self._num_ended += 1
        count = self._num_done + self._num_ended
        total = self._num_done + len(self._configs)
        self._print(f"{count}/{total} {name}: {how}; {self._left(trials)}")

    def _left(self, trials: list[Any]) -> str:
        """Estimate the time left from the epochs of all runs, also of those under way."""
        total = sum(config.recipe.epochs for config in self._configs.values())
        done = sum((trial.last_result or {}).get("epoch", 0) for trial in trials)
        elapsed = time.monotonic() - self._began
        if not done:
            return _duration(elapsed)
        return f"{_duration(elapsed)}, {_duration(elapsed * (total - done) / done)} left"

    def _print(self, line: str) -> None:
        if not self._quiet:
            console = Console(stderr=True)  # Tune copies callbacks, and a console cannot be copied
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _worker_error(trial: Any) -> str:
    """Return the last line of what Ray has to say about a worker that died."""
    lines = Path(trial.error_file).read_text().split("\n") if trial.error_file else []
    why = next((line for line in reversed(lines) if line.strip()), "unknown reason")
    return f"its worker died: {why}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
