"""Records of a run: one JSON object per line, written as it happens and read by the report.

A run's file has a ``run`` line (configuration, versions, commit, hardware), then ``step`` and ``epoch``
lines, then an ``end`` line with the status. Whatever depends on the clock or on the machine's memory is
under the key ``clock``: apart from it, two runs of one configuration on one machine have equal records.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nero_lab.engine.errors import ConfigError

Status = Literal["finished", "diverged", "failed", "unfinished"]
FILE_NAME = "records.jsonl"


class Recorder:
    """Append records to a file, and to TensorBoard beside it.

    Args:
        path: the file.
        size: bytes to keep of what is there already: a resumed run drops what came after its checkpoint.
        step: the step at which TensorBoard's curves continue.
    """

    def __init__(
        self, path: Path, *, size: int = 0, step: int = 0, tensorboard: bool = True
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if size and (not path.exists() or path.stat().st_size < size):
            raise ConfigError(
                f"{path} is shorter than when the checkpoint beside it was written; remove the folder "
                f"{path.parent} to begin again"
            )
        self._file = path.open("ab")
        self._file.truncate(size)
        self._file.seek(
            0, os.SEEK_END
        )  # until something is written, tell() would return the old size
        self._board: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            board = path.parent / "tensorboard"
            self._board = SummaryWriter(str(board), purge_step=step + 1 if size else None)

    def sync(self) -> int:
        """Bring everything to the disk and return the size: before a checkpoint that relies on it."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def write(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Write one record and flush it."""
        line = json.dumps({"kind": kind, **_plain(fields)}, allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()

    def curves(self, step: int, values: Mapping[str, float]) -> None:
        """Draw values in TensorBoard."""
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()


@dataclass(frozen=True)
class RunRecord:
    """A run as its file tells it."""

    config: dict[str, Any]
    steps: list[dict[str, Any]]
    epochs: list[dict[str, Any]]
    end: dict[str, Any] | None

    @property
    def status(self) -> Status:
        """How it ended, if it did."""
        status: Status = self.end["status"] if self.end else "unfinished"
        return status

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to run: divergence is a result, a failure is not."""
        return self.status in ("finished", "diverged")

    def best(self, metric: str, *, higher_is_better: bool) -> float:
        """Return the best value of a score over the epochs, or NaN if there is none."""
        values = [
            epoch[metric] for epoch in self.epochs if not math.isnan(epoch.get(metric, math.nan))
        ]
        return (max if higher_is_better else min)(values, default=math.nan)

    def last(self, metric: str) -> float:
        """Return the last value of a score, or NaN if there is none."""
        return float(self.epochs[-1].get(metric, math.nan)) if self.epochs else math.nan


def read(path: Path) -> RunRecord | None:
    """Read the records of one run; a last line that was cut short is left out.

    Returns:
        None if there is no complete line.

    Raises:
        ValueError: if the file holds something else.
    """
    lines: list[dict[str, Any]] = []
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            lines.append(_numbers(json.loads(line)))
    by_kind = {kind: [line for line in lines if line["kind"] == kind] for kind in ("step", "epoch")}
    if not lines:
        return None
    if lines[0]["kind"] != "run":
        raise ValueError(f"{path} does not begin with a record of a run")
    end = lines[-1] if lines[-1]["kind"] == "end" else None
    return RunRecord(lines[0], by_kind["step"], by_kind["epoch"], end)


def read_all(folder: Path) -> list[RunRecord]:
    """Read every run below a folder, in the order of their names."""
    found = (read(path) for path in sorted(folder.rglob("*.jsonl")))
    return [record for record in found if record is not None]


# JSON has no infinity: non-finite numbers are written as {"number": "inf"}.


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    return value


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"number"}:
            return float(value["number"])
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return value
