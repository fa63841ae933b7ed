"""The list of mutants cannot rot: every edit can be made, its tests exist, and no verdict outlives them."""

import json
from pathlib import Path

import pytest

from tests.mutants.mutant import ROOT, Mutant, problem_with
from tests.mutants.mutant_digest import digest_of, files_of, state_of
from tests.mutants.mutant_list import MUTANTS
from tests.mutants.mutant_runner import read_record, run_all


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_can_be_made(mutant):
    assert problem_with(mutant) is None
    for selected in mutant.tests:
        path, *names = selected.split("::")
        if path.startswith("tests/"):
            assert (ROOT / path).exists(), f"there is no {path}"
        if path.endswith(".py"):
            text = (ROOT / path).read_text()
            for name in names:
                assert name.split("[")[0] in text, f"{path} has no {name}"


def test_names_tell_them_apart():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 60


def test_every_verdict_that_holds_is_a_kill(capsys):
    """Stale ones are counted; `make mutants` runs them again."""
    known = read_record(ROOT / "records" / "mutants.json")
    assert known.keys() <= {mutant.name for mutant in MUTANTS}, "verdicts on what is gone"
    states = [(mutant, state_of(mutant, known)) for mutant in MUTANTS]
    lived = [
        mutant.name
        for mutant, state in states
        if state not in ("killed", "stale", "not run") and not mutant.survives
    ]
    assert not lived
    with capsys.disabled():
        num_open = sum(state in ("stale", "not run") for _, state in states)
        print(f"\n{num_open} of {len(MUTANTS)} mutants have no verdict that holds: make mutants")


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "src" / "sums.py").write_text("def add(a, b):\n    return a + b  # a sum\n")
    imports = "from numbers_to_add import ONE\nfrom sums import add\n"
    test = f"{imports}\n\ndef test_add():\n    assert add(ONE, 2) == 3\n"
    (root / "tests" / "test_sums.py").write_text(test)
    (root / "tests" / "numbers_to_add.py").write_text(
        "from tests.deeper import one\n\nONE = one.ONE\n"
    )
    (root / "tests" / "deeper").mkdir()
    (root / "tests" / "deeper" / "one.py").write_text("ONE = 1\n")
    (root / "tests" / "conftest.py").write_text("")
    (root / "tests" / "test_other.py").write_text("def test_nothing():\n    pass\n")
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["tests", "."]\n')
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


class TestAVerdictIsStale:
    """After any change of what it rests on, and not after others."""

    WRONG = edit("wrong", "a + b", "a - b")

    def verdict(self, repository, mutant=WRONG):
        known = {"wrong": {"result": "killed", "digest": digest_of(mutant, repository)}}
        assert state_of(mutant, known, repository) == "killed"
        return known

    @pytest.mark.parametrize(
        "file",
        ["src/sums.py", "tests/test_sums.py", "tests/numbers_to_add.py", "tests/deeper/one.py"],
    )
    def test_if_the_source_or_a_test_or_its_helper_changes(self, repository, file):
        known = self.verdict(repository)
        path = repository / file
        path.write_text(path.read_text() + "# changed\n")
        assert state_of(self.WRONG, known, repository) == "stale"

    def test_if_a_conftest_comes(self, repository):
        known = self.verdict(repository)
        (repository / "conftest.py").write_text("")
        assert state_of(self.WRONG, known, repository) == "stale"

    def test_if_the_test_goes(self, repository):
        known = self.verdict(repository)
        (repository / "tests" / "test_sums.py").unlink()
        assert state_of(self.WRONG, known, repository) == "stale"

    def test_if_any_file_of_its_folder_changes(self, repository):
        mutant = edit("wrong", "a + b", "a - b", tests="tests")
        known = self.verdict(repository, mutant)
        (repository / "tests" / "test_other.py").write_text("")
        assert state_of(mutant, known, repository) == "stale"

    def test_unless_something_else_changes(self, repository):
        known = self.verdict(repository)
        (repository / "tests" / "test_other.py").write_text("")
        (repository / "src" / "more.py").write_text("")
        assert state_of(self.WRONG, known, repository) == "killed"

    def test_if_there_is_none(self, repository):
        assert state_of(edit("wrong", "a + b", "a - b"), {}, repository) == "not run"


def test_a_stale_mutant_runs_again_and_a_folder_will_do(repository, tmp_path):
    mutant, record = edit("wrong", "a + b", "a - b", tests="tests"), tmp_path / "record.json"
    found = run_all([mutant], record, root=repository)["wrong"]
    assert (found["result"], found["by"]) == ("killed", "tests/test_sums.py::test_add")
    test = repository / "tests" / "test_sums.py"
    test.write_text(test.read_text().replace("== 3", "!= 4"))  # which does not notice
    assert run_all([mutant], record, root=repository)["wrong"]["result"] == "survived"


def test_what_tests_rest_on_is_found():
    found = {
        path.relative_to(ROOT).as_posix()
        for path in files_of(["tests/distributed/test_agreement.py"])
    }
    assert {"conftest.py", "tests/distributed/ranks.py"} <= found
    assert files_of(["tests/layout"]) >= {*(ROOT / "tests" / "layout").rglob("*.py")}
