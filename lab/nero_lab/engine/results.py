"""Results: all runs of a task at a scale in one file, ``TASK/SCALE.jsonl``, one line per run.

A line is a run's records as one JSON object: ``run``, its name; the fields of its first record; ``step``
and ``epoch``, lists of the records of these kinds; and ``end``, which is null if the run has none. So
``pandas.read_json(path, lines=True)`` has one row per run. A file grows by whole lines: an append that was
interrupted leaves a last line that is no JSON, and every run before it can be read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nero_lab.engine import records
from nero_lab.engine.errors import ConfigError
from nero_lab.engine.records import RunRecord

_KINDS = ("step", "epoch")


@dataclass(frozen=True)
class Collected:
    """How many runs were added, were there already, and are not finished."""

    num_added: int
    num_there: int
    num_unfinished: int


def collect(runs_dir: Path, results_dir: Path) -> Collected:
    """Append the runs below a folder that finished or diverged to the results, unless they are there.

    Every run is checked before anything is written. A last line that was cut short is replaced.

    Args:
        runs_dir: where runs left their records, in ``TASK/SCALE/NAME/records.jsonl``.
        results_dir: where ``TASK/SCALE.jsonl`` are, or will be.

    Raises:
        ConfigError: if there are no records, some that cannot be read, or the results have other records
            of a run.
    """
    files: dict[Path, _File] = {}
    num_there = num_unfinished = 0
    for path in sorted(runs_dir.resolve().rglob(records.FILE_NAME)):
        record = _read_log(path)
        if record is None or not record.is_done:
            num_unfinished += 1
            continue
        name, in_scale = path.parent.name, path.parent.parent
        task, scale = in_scale.parent.name, in_scale.name
        if scale != record.config["scale"]:
            raise ConfigError(f"{path} is not in a run's folder: TASK/SCALE/NAME")
        file = results_dir / task / f"{scale}.jsonl"
        if file not in files:
            files[file] = _File.read(file)
        line = to_line(name, record)
        old = files[file].there.get(name) or files[file].added.setdefault(name, line)
        if old != line:
            raise ConfigError(
                f"{file} has different records for {name} than {path}; to replace them, remove its line"
            )
        num_there += name in files[file].there
    if not files and not num_unfinished:
        raise ConfigError(f"there are no records below {runs_dir}")
    for path, found in files.items():
        found.append(path)
    return Collected(sum(len(found.added) for found in files.values()), num_there, num_unfinished)


def lay_out(results_dir: Path, runs_dir: Path, *, scale: str) -> int:
    """Write the runs of a scale in the results where runs leave their records, unless some are there.

    So finished runs are not rerun, and another machine can continue from their results.

    Args:
        results_dir: where ``TASK/SCALE.jsonl`` are.
        runs_dir: the folder of all runs.
        scale: of the runs.

    Returns:
        how many were written.
    """
    num_written = 0
    for path in sorted(results_dir.glob(f"*/{scale}.jsonl")):
        for line in path.read_bytes().splitlines():
            name, record = from_line(line)
            log = runs_dir / path.parent.name / scale / name / records.FILE_NAME
            if log.exists():
                continue
            lines = [*record.steps, *record.epochs]
            lines.sort(key=lambda each: (each["step"], each["kind"] == "epoch"))
            log.parent.mkdir(parents=True, exist_ok=True)
            whole = [record.config, *lines, *([record.end] if record.end else [])]
            log.write_bytes(
                b"".join(records.to_line({"kind": each["kind"], **each}) for each in whole)
            )
            num_written += 1
    return num_written


def read_all(folder: Path) -> list[RunRecord]:
    """Read every run below a folder, in the order of their names.

    Raises:
        ValueError: if something is not the records of a run.
    """
    found, skipped = read_below(folder)
    for path, reason in skipped.items():
        raise ValueError(f"{path}: {reason}")
    return [record for _, record in found]


def read_below(folder: Path) -> tuple[list[tuple[Path, RunRecord]], dict[Path, str]]:
    """Read what can be read below a folder: results, and the records of runs where they were made.

    Returns:
        each run with its file, in the order of their names; and why some files, or lines of them, were
        not read.
    """
    found: dict[Path, list[tuple[Path, RunRecord]]] = {}  # by name
    skipped: dict[Path, str] = {}
    for path in sorted(folder.rglob("*.jsonl")):
        is_log, broken = path.name == records.FILE_NAME, []
        try:
            log = records.read(path) if is_log else None
            lines = [] if is_log else path.read_bytes().splitlines()
        except (OSError, ValueError) as error:
            skipped[path] = f"{type(error).__name__}: {error}"
            continue
        if log:
            found.setdefault(path.parent, []).append((path, log))
        for number, line in enumerate(lines, 1):
            try:
                name, record = from_line(line)
                found.setdefault(path.with_suffix("") / name, []).append((path, record))
            except ValueError as error:
                broken.append(f"line {number} is not a run: {error}")
        if broken:
            more = f" (and {len(broken) - 1} more lines)" if broken[1:] else ""
            skipped[path] = broken[0] + more
    return [run for name in sorted(found) for run in found[name]], skipped


def to_line(name: str, record: RunRecord) -> bytes:
    """Return a run as a line of results."""
    by_kind = {"step": record.steps, "epoch": record.epochs}
    return records.to_line(
        {
            "run": name,
            **_without_kind(record.config),
            **{kind: [_without_kind(line) for line in by_kind[kind]] for kind in _KINDS},
            "end": _without_kind(record.end) if record.end else None,
        }
    )


def from_line(line: bytes) -> tuple[str, RunRecord]:
    """Return the name and the records of the run in a line of results.

    Raises:
        ValueError: if it holds something else, or was cut short.
    """
    try:
        fields = dict(records.from_line(line))
        name, end = fields.pop("run"), fields.pop("end")
        later = [{**each, "kind": kind} for kind in _KINDS for each in fields.pop(kind)]
        later += [{**end, "kind": "end"}] if end is not None else []
        lines = [{**fields, "kind": "run"}, *later]
        checked = [records.checked(each, is_first=not i) for i, each in enumerate(lines)]
    except KeyError as error:
        raise ValueError(f"it has no {error}") from error
    except (RecursionError, TypeError) as error:
        raise ValueError(str(error)) from error
    if not isinstance(name, str):
        raise ValueError(f"run is {name!r}")
    return name, RunRecord.of(checked)


@dataclass(frozen=True)
class _File:
    """A file of results: its lines by the name of the run, and those that will be appended."""

    there: Mapping[str, bytes]
    size: int  # without a last line that was cut short
    has_newline: bool  # at the end, unless an editor has removed it
    added: dict[str, bytes]

    @classmethod
    def read(cls, path: Path) -> "_File":
        there: dict[str, bytes] = {}
        size, has_newline = 0, True
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                name, record = from_line(line)
            except ValueError as error:
                if not line.endswith(b"\n"):
                    break
                raise ConfigError(f"line {number} of {path} is not a run: {error}") from error
            there[name] = to_line(name, record)
            size, has_newline = size + len(line), line.endswith(b"\n")
        return cls(there, size, has_newline, {})

    def append(self, path: Path) -> None:
        """Append what was added in one write."""
        if self.added:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.truncate(self.size)
                file.write((b"" if self.has_newline else b"\n") + b"".join(self.added.values()))


def _read_log(path: Path) -> RunRecord | None:
    try:
        return records.read(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _without_kind(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "kind"}
