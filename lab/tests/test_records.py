"""Records are read as they were written, or not at all."""

import json
from pathlib import Path
from typing import Any

import pytest
from made_up_runs import write_run

from nero_lab.engine import records
from nero_lab.engine.results import read_all
from nero_lab.runner import RunConfig

RUN = {
    **dict.fromkeys(("task", "scale", "optimizer", "command"), "text"),
    **{"lr": 0.1, "seed": 0, "options": {}, "recipe": {}, "variant": None, "epochs": None},
}
FIRST = {
    **dict.fromkeys(("task", "scale", "optimizer", "command"), (None, 3, [], True)),
    **dict.fromkeys(("options", "recipe"), (None, 3, "x", [])),
    **{"lr": (None, "x", [], True), "seed": (None, 0.5, "x", True)},
    **{"variant": (3, []), "epochs": ("x", 0.5), "num_parameters": ("x", [])},
    **{"commit": (3, []), "hardware": ("x", []), "versions": (3,), "clock": ("x", {"started": 3})},
}
LATER = [
    *({"kind": kind, "step": 1} for kind in ("step", "epoch")),
    *({"kind": kind, "step": "x", "epoch": 1} for kind in ("step", "epoch")),
    *({"kind": kind, "step": 1, "epoch": 1, "loss": x} for kind in ("step", "epoch") for x in "x0"),
    {"kind": "epoch", "step": 1, "epoch": 1, "loss": None},
    {"kind": "epoch", "step": 1, "epoch": 1, "clock": {"seconds": "x"}},
    {"kind": "end"},
    {"kind": "end", "status": "tired"},
    {"kind": "end", "status": "finished", "step": "x"},
    {"kind": "end", "status": "finished", "optimizer_state_bytes": []},
    {"kind": "end", "status": "finished", "clock": {"seconds_per_step": {}}},
    {"kind": "pause"},
    {"loss": 1.0},
    [1, 2],
    "text",
    None,
]


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_what_a_run_writes_is_read(tmp_path: Path) -> None:
    write_run(tmp_path, RunConfig("shakespeare"), [2.0, 1.0])
    (record,) = read_all(tmp_path)
    assert (record.status, len(record.epochs), record.last("valid_loss")) == ("finished", 2, 1.0)
    assert records.read(write(tmp_path / "least", {"kind": "run", **RUN})) is not None


@pytest.mark.parametrize("name", FIRST)
def test_a_field_of_another_kind_is_named(name: str, tmp_path: Path) -> None:
    for value in FIRST[name]:
        path = write(tmp_path / "records.jsonl", {"kind": "run", **RUN, name: value})
        with pytest.raises(ValueError, match=f"line 1 .*({name}|started) is "):
            records.read(path)


@pytest.mark.parametrize("line", LATER, ids=str)
def test_a_line_that_is_not_a_record_is_refused(line: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "records.jsonl", {"kind": "run", **RUN}, line)
    with pytest.raises(ValueError, match="line 2 is not a record of a run"):
        records.read(path)


@pytest.mark.parametrize("name", RUN)
def test_a_header_without_a_field_is_refused(name: str, tmp_path: Path) -> None:
    fields = {key: value for key, value in RUN.items() if key != name}
    path = write(tmp_path / "records.jsonl", {"kind": "run", **fields})
    if name in ("variant", "epochs"):  # None, where they say nothing
        assert records.read(path) is not None
    else:
        with pytest.raises(ValueError, match=f"{name} is None"):
            records.read(path)
