"""The packages of the lab depend on each other in one direction only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

LAB = Path(__file__).parents[1]
PACKAGE = LAB / "nero_lab"
# Downwards: a package may import those before it.
ORDER = [
    "engine",
    "data",
    "models",
    "experiments",
    "tasks",
    "runner",
    "sweep",
    "protocol",
    "report",
    "cli",
]


def imported_packages(path: Path) -> set[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import, which this test does not read"
            assert node.module is not None
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("nero_lab.")} & set(ORDER)


def test_every_package_has_its_place() -> None:
    found = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert found == set(ORDER), "a new package needs its place in ORDER"
    loose = {p.name for p in PACKAGE.glob("*.py")}
    assert loose == {"__init__.py", "__main__.py"}, "a module belongs in one of the packages"


@pytest.mark.parametrize("package", ORDER)
def test_imports_go_downwards(package: str) -> None:
    allowed = set(ORDER[: ORDER.index(package) + 1])
    for path in (PACKAGE / package).rglob("*.py"):
        upward = imported_packages(path) - allowed
        assert not upward, f"{path.relative_to(PACKAGE)} imports {upward}, which is above it"


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_command_answers_without_torch(option: str) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(LAB)!r}); sys.modules['torch'] = None; "
        f"from nero_lab.cli import main; main([{option!r}])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "nero-lab" in ended.stdout


@pytest.mark.slow
def test_what_is_not_installed_is_named() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(LAB)!r}); sys.modules['pooch'] = None; "
        "from nero_lab.cli import main; raise SystemExit(main(['list']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "pip install nero-lab (missing: pooch)" in ended.stderr
