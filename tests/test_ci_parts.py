"""A part of CI is skipped only if nothing that it depends on has changed since it passed."""

import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from tests.mutants.mutant_digest import files_of

ROOT = Path(__file__).parents[1]
spec = spec_from_file_location("parts", ROOT / ".ci" / "parts.py")
parts = sys.modules["parts"] = module_from_spec(spec)  # dataclasses look their module up
spec.loader.exec_module(parts)

LAB = parts.Part("lab", ("lab", "src", ":!src/unrelated"))


@pytest.fixture
def repository(tmp_path):
    """A repository with a part that has passed."""
    for name in ("Makefile", "lab/a.py", "src/b.py", "src/unrelated/c.py", "records/ci.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"passed": {}}')
    (tmp_path / ".gitignore").write_text("*.pyc\n")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    assert parts.due([LAB], tmp_path) == [LAB], "it has not passed yet"
    parts.record([LAB], tmp_path)
    assert parts.due([LAB], tmp_path) == []
    return tmp_path


class TestIsDue:
    @pytest.mark.parametrize("name", ["lab/a.py", "src/b.py", "Makefile"])
    def test_after_a_change(self, repository, name):
        (repository / name).write_text("changed")
        assert parts.due([LAB], repository) == [LAB]
        parts.record([LAB], repository)
        assert parts.due([LAB], repository) == []

    def test_after_a_new_file(self, repository):
        (repository / "lab" / "new.py").write_text("")
        assert parts.due([LAB], repository) == [LAB]

    def test_after_a_deleted_file(self, repository):
        (repository / "lab" / "a.py").unlink()
        assert parts.due([LAB], repository) == [LAB]

    def test_after_a_new_name(self, repository):
        (repository / "lab" / "a.py").rename(repository / "lab" / "z.py")
        assert parts.due([LAB], repository) == [LAB]

    def test_after_a_change_of_its_row(self, repository):
        other = parts.Part("lab", ("lab", "src"))
        assert parts.due([other], repository) == [other]


class TestIsSkipped:
    @pytest.mark.parametrize("name", ["README.md", "src/unrelated/c.py", "lab/a.pyc"])
    def test_after_a_change_of_something_else(self, repository, name):
        (repository / name).write_text("changed")
        assert parts.due([LAB], repository) == []

    def test_except_on_mondays_if_it_takes_too_long(self, repository):
        assert parts.due([replace(LAB, is_only_weekly=True)], repository) == []

    def test_after_another_part_has_passed(self, repository):
        parts.record([parts.Part("tools", ("src",))], repository)
        assert parts.due([LAB], repository) == []


def run(*arguments, returncode=0):
    command = [sys.executable, str(ROOT / ".ci" / "parts.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == returncode, done.stderr
    return done


def test_the_command_names_parts_and_tests():
    names = [part.name for part in parts.PARTS]
    assert run("due", "--all").stdout.split() == names
    assert {*run("due").stdout.split()} <= {*names}
    assert run("tests", "test-lab", "test-tools").stdout.split() == ["lab", "tools"]
    assert run("tests").stdout.split() == []
    assert "there are types, pages" in run("due", "nonsense", returncode=2).stderr


@pytest.mark.parametrize("part", parts.PARTS, ids=lambda part: part.name)
class TestTable:
    def test_every_pattern_matches_a_file(self, part):
        for pattern in (*parts.COMMON, *part.files):
            command = ["git", "ls-files", "--cached", "--others", "--", pattern.removeprefix(":!")]
            listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
            assert listed.stdout or pattern == ":!records/ci.json", f"{pattern} matches nothing"

    def test_what_its_tests_import_is_in_it(self, part):
        """Found by following imports from its test files, over the tests and our packages."""
        if part.is_weekly:
            pytest.skip("the library may change without it")
        python = [path for path in part.tests if (ROOT / path).suffix != ".md"]
        reached = {
            path.relative_to(ROOT).as_posix() for path in files_of(python, packages=PACKAGES)
        }
        assert reached - {*parts.files_of(part)} == set()

    def test_is_a_target_of_the_makefile_and_a_job(self, part):
        targets = re.findall(r"^([\w -]+): ", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert part.name in " ".join(targets).split()
        jobs = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
        assert part.name in jobs.split("job:\n")[1].split("]")[0].strip(" [").split(", ")


PACKAGES = {"nero": "src", "nero_lab": "lab", "nero_tools": "tools", "conformance": ""}


def test_all_tests_run_if_nothing_is_skipped():
    """What the core leaves out is what parts collect."""
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    left_out = makefile.split("\nOWN = ")[1].split("\n")[0].split()
    collected = [path for part in parts.PARTS for path in part.tests]
    assert {*left_out} == {path for path in collected if path not in ("lab", "tools")}
