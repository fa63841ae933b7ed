"""Records of a run: one JSON object per line, written as it happens and read by the report.

A run's file has a ``run`` line (configuration, versions, commit, hardware), then ``step`` and ``epoch``
lines, then an ``end`` line with the status. Whatever depends on the clock or on the machine's memory is
under the key ``clock``: apart from it, two runs of one configuration on one machine have equal records.
``results.py`` gathers the runs that are done.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from nero_lab.engine.errors import ConfigError

Status = Literal["finished", "diverged", "stopped", "failed", "unfinished"]
FILE_NAME = "records.jsonl"

_NUMBER = (int, float)
_NOTHING = type(None)
# What each kind of line must have.
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "run": {
        **dict.fromkeys(("task", "scale", "optimizer", "command"), (str,)),
        **{"lr": _NUMBER, "seed": (int,), "options": (dict,), "recipe": (dict,)},
        **{"variant": (str, _NOTHING), "epochs": (int, _NOTHING)},
    },
    "step": {"step": _NUMBER, "epoch": _NUMBER},
    "epoch": {"step": _NUMBER, "epoch": _NUMBER},
    "end": {"status": (str,)},
}
# What may be missing, or None; the last four are below the clock.
_OPTIONAL: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("commit", "message", "traceback"), (str,)),
    **dict.fromkeys(("clock", "hardware", "versions"), (dict,)),
    **dict.fromkeys(("num_parameters", "optimizer_state_bytes", "epoch", "step"), _NUMBER),
    **dict.fromkeys(("seconds", "seconds_per_step", "peak_memory_bytes"), _NUMBER),
    "started": (str,),
}


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
                f"{path} is shorter than when the checkpoint next to it was written; remove the folder "
                f"{path.parent} to start the run over"
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
        self._file.write(to_line({"kind": kind, **fields}))
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
    """A run, as read from its record file."""

    config: dict[str, Any]
    steps: list[dict[str, Any]]
    epochs: list[dict[str, Any]]
    end: dict[str, Any] | None

    @classmethod
    def of(cls, lines: Sequence[dict[str, Any]]) -> "RunRecord":
        """Return the run that has these lines, of which there is at least one."""
        steps, epochs = ([line for line in lines if line["kind"] == k] for k in ("step", "epoch"))
        return cls(lines[0], steps, epochs, lines[-1] if lines[-1]["kind"] == "end" else None)

    @property
    def status(self) -> Status:
        """How it ended, if it did."""
        status: Status = self.end["status"] if self.end else "unfinished"
        return status

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to run: divergence is a result, a failure is not."""
        return self.status in ("finished", "diverged", "stopped")

    def best(self, metric: str, *, higher_is_better: bool) -> float:
        """Return the best value of a score over the epochs, or NaN if there is none."""
        values = [
            epoch[metric] for epoch in self.epochs if not math.isnan(epoch.get(metric, math.nan))
        ]
        return (max if higher_is_better else min)(values, default=math.nan)

    def last(self, metric: str) -> float:
        """Return the last value of a score, or NaN if there is none."""
        return float(self.epochs[-1].get(metric, math.nan)) if self.epochs else math.nan


def changes_in_words(config: Mapping[str, Any]) -> str:
    """Describe how a run's recipe was changed: variant, options and epochs; equal ones are compared.

    Example:
        >>> changes_in_words({"variant": "long", "options": {"width": 64}, "epochs": None})
        'long, width 64'
    """
    words = [config["variant"]] if config["variant"] else []
    words += [f"{name} {value}" for name, value in sorted(config["options"].items())]
    words += [f"{config['epochs']} epochs"] if config["epochs"] is not None else []
    return ", ".join(words)


def read(path: Path) -> RunRecord | None:
    """Read the records of one run; a last line that was cut short is left out.

    Returns:
        None if there is no complete line.

    Raises:
        ValueError: if the file holds something else, or a broken line.
    """
    lines: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if line.endswith(b"\n"):
            try:
                lines.append(checked(from_line(line), is_first=not lines))
            except (RecursionError, TypeError, ValueError) as error:
                raise ValueError(f"line {number} is not a record of a run: {error}") from error
    return RunRecord.of(lines) if lines else None


def checked(line: Any, *, is_first: bool) -> dict[str, Any]:
    """Return a line if it has the fields of its kind, each of the right type.

    Raises:
        ValueError: if it has not.
    """
    fields = {} if not isinstance(line, dict) else line
    kind = str(fields.get("kind"))
    if kind not in (("run",) if is_first else _FIELDS):
        raise ValueError(f"its kind is {kind!r}, not {'run' if is_first else 'step, epoch or end'}")
    wanted = _FIELDS[kind]
    if kind in ("step", "epoch"):  # whatever the task measures
        wanted = wanted | dict.fromkeys(fields.keys() - {"kind", "clock"}, _NUMBER)
    _check_types(fields, wanted)
    for part in (fields, fields.get("clock") or {}):
        present = {name for name, value in part.items() if value is not None}
        _check_types(part, {name: _OPTIONAL[name] for name in _OPTIONAL.keys() & present})
    if kind == "end" and fields["status"] not in get_args(Status):
        raise ValueError(f"status is {fields['status']!r}")
    return fields


def _check_types(fields: Mapping[str, Any], wanted: Mapping[str, tuple[type, ...]]) -> None:
    for name, types in wanted.items():
        value = fields.get(name)
        if not isinstance(value, types) or isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}")


def to_line(fields: Mapping[str, Any]) -> bytes:
    """Return one line of JSON, which has no infinity: it is written as ``{"number": "inf"}``."""
    return json.dumps(_plain(fields), allow_nan=False).encode() + b"\n"


def from_line(line: bytes) -> Any:
    """Return what ``to_line`` wrote."""
    return _numbers(json.loads(line))


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
