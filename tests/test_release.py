"""Can the distributions be released? One version, the same bytes every time, no bigger than they say."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from torch import nn

import nero

ROOT = Path(__file__).parents[1]
# Of each distribution: its package, and the most bytes that an installation takes.
SIZES = {".": ("nero", 846_000), "lab": ("nero_lab", 780_000), "tools": ("nero_tools", 293_000)}


def build(folder: Path, out: Path) -> tuple[Path, Path]:
    """Build a source archive and a wheel."""
    builders = SdistBuilder(str(folder)), WheelBuilder(str(folder))
    archive, wheel = (
        Path(next(b.build(directory=str(out), versions=["standard"]))) for b in builders
    )
    return archive, wheel


@pytest.fixture(scope="module", params=SIZES)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A distribution's folder, source archive and wheel."""
    return request.param, *build(ROOT / request.param, tmp_path_factory.mktemp("first"))


def test_all_distributions_have_the_version_of_nero():
    for folder in SIZES:
        assert ProjectMetadata(str(ROOT / folder), PluginManager()).version == nero.__version__


def test_the_changelog_has_notes_of_this_version():
    assert f"\n## [{nero.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_changelog_quotes_errors_as_they_are():
    text = (ROOT / "CHANGELOG.md").read_text()
    (quoted,) = re.findall(r"^```text\n>>> (.*?)^```", text, re.MULTILINE | re.DOTALL)
    for example in quoted.split(">>> "):
        call, _, error = example.partition("\n")
        with pytest.raises((TypeError, ValueError)) as raised:
            eval(call, {"Nero": nero.Nero, "model": nn.Sequential(nn.Linear(4, 3))})
        shown = f"{type(raised.value).__name__}: {raised.value}"
        assert " ".join(error.split()) == shown


def test_building_again_gives_the_same_bytes(built, tmp_path: Path):
    folder, archive, wheel = built
    again = build(ROOT / folder, tmp_path / "again")
    assert [path.read_bytes() for path in again] == [archive.read_bytes(), wheel.read_bytes()]


def test_the_source_archive_builds_the_same(built, tmp_path: Path):
    """Unpacked elsewhere and at another time, without the rest of the repository."""
    _, archive, wheel = built
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    again = build(tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path / "again")
    assert [path.read_bytes() for path in again] == [archive.read_bytes(), wheel.read_bytes()]


def test_a_wheel_holds_one_package_of_a_known_size(built):
    folder, _, wheel = built
    package, most = SIZES[folder]
    with zipfile.ZipFile(wheel) as packed:
        entries = packed.infolist()
    outside = [
        e.filename
        for e in entries
        if not re.match(rf"{package}/|\w+-[^/]+\.dist-info/", e.filename)
    ]
    assert not outside
    assert sum(e.file_size for e in entries) <= most


def run(code: str) -> str:
    """Run Python code in a process of its own, and return what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout


def test_importing_nero_brings_in_nothing_that_torch_does_not():
    code = "import sys, torch; old = {*sys.modules}; from nero import Nero; print(*{*sys.modules} - old)"
    foreign = {name.partition(".")[0] for name in run(code).split()} - {"nero"}
    assert foreign <= {"torch", *sys.stdlib_module_names}


def test_importing_nero_takes_little_longer_than_torch():
    """At most 1.3 times. Time in user mode, the smaller of two: other processes hardly change it."""
    code = "import resource; {}; print(resource.getrusage(resource.RUSAGE_SELF).ru_utime)"
    alone, ours = [], []
    for _ in range(2):
        alone.append(float(run(code.format("import torch"))))
        ours.append(float(run(code.format("from nero import Nero"))))
    assert min(ours) <= 1.3 * min(alone), (ours, alone)
