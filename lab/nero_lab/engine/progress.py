"""Progress of a run in the terminal."""

import sys
import time
from collections.abc import Mapping
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress


class Progress(Protocol):
    """Receives the steps and epochs of a run."""

    def on_step(self, step: int, averages: Mapping[str, float]) -> None:
        """Receive the averages of a step."""

    def on_epoch(self, epoch: int, scores: Mapping[str, float]) -> None:
        """Receive the scores of an epoch."""


class Silent:
    """Show nothing: for ranks other than the first, for sweeps and for tests."""

    def on_step(self, step: int, averages: Mapping[str, float]) -> None:
        """Do nothing."""

    def on_epoch(self, epoch: int, scores: Mapping[str, float]) -> None:
        """Do nothing."""


class ProgressBar:
    """A bar with the time left in a terminal; one line per epoch elsewhere.

    Args:
        name: what is being run.
        num_steps: steps of the whole run.
        done: steps that a resumed run has behind it.
    """

    def __init__(self, name: str, num_steps: int, done: int = 0) -> None:
        self._console = Console(file=sys.stderr)
        self._began, self._done, self._num_steps = time.monotonic(), done, num_steps
        self._step = done
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[averages]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._bar = RichProgress(
            *columns, console=self._console, disable=not self._console.is_terminal
        )
        self._task = self._bar.add_task(name, total=num_steps, completed=done, averages="")
        self._bar.start()
        self._console.print(
            f"{name}: {num_steps:,} steps" + (f", from step {done:,}" if done else "")
        )

    def on_step(self, step: int, averages: Mapping[str, float]) -> None:
        """Move the bar."""
        self._step = step
        self._bar.update(self._task, completed=step, averages=_line(averages))

    def on_epoch(self, epoch: int, scores: Mapping[str, float]) -> None:
        """Print the scores."""
        elapsed = time.monotonic() - self._began
        left = elapsed / max(self._step - self._done, 1) * (self._num_steps - self._step)
        self._console.print(f"epoch {epoch}: {_line(scores)}, {elapsed:.0f} s, {left:.0f} s left")

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()


def _line(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
