"""The list of mutants cannot rot: every edit can still be made, and every test that it names exists."""

import json
from pathlib import Path

import pytest

from tests.mutants.mutant_list import MUTANTS
from tests.mutants.mutant_runner import ROOT, Mutant, problem_with, run_all


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_can_be_made(mutant):
    assert problem_with(mutant) is None
    for selected in mutant.tests:
        path, *names = selected.split("::")
        if path.endswith(".py"):
            text = (ROOT / path).read_text()
            for name in names:
                assert name.split("[")[0] in text, f"{path} has no {name}"


def test_names_tell_them_apart():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 60


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "src" / "sums.py").write_text("def add(a, b):\n    return a + b  # a sum\n")
    test = "from sums import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
    (root / "tests" / "test_sums.py").write_text(test)
    return root


def edit(name: str, old: str, new: str, tests: str = "tests/test_sums.py") -> Mutant:
    return Mutant(name, "src/sums.py", old, new, (tests,))


def test_runner_tells_what_happened_and_goes_on_where_it_stopped(repository, tmp_path):
    mutants = [
        edit("wrong", "a + b", "a - b"),
        edit("comment", "# a sum", "# sum"),
        edit("twice", "a", "b"),
        edit("no test", "a + b", "a", tests="tests/nothing.py"),
    ]
    record = tmp_path / "record.json"
    run_all(mutants[:1], record, root=repository)
    first = record.read_text()
    found = run_all(mutants, record, jobs=2, root=repository)
    assert {name: each["result"] for name, each in found.items()} == {
        "wrong": "killed",
        "comment": "survived",
        "twice": "not applicable",
        "no test": "not applicable",
    }
    assert found["wrong"]["by"] == "tests/test_sums.py::test_add"
    assert found["wrong"] == json.loads(first)["mutants"]["wrong"], "it was not run again"
    assert (repository / "src" / "sums.py").read_text().count("a + b") == 1
    assert json.loads(record.read_text())["killed_of_reachable"] == 0.25
    assert Path(record).exists()
