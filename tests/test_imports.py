"""Rooms depend on each other in one direction only, and files never in a cycle."""

import ast
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import nero

PACKAGE = Path(__file__).parents[1] / "src" / "nero"
# Downwards: a package may import those before it.
ORDER = [
    "numbers",
    "tables",
    "core",
    "functional",
    "layout",
    "backends",
    "distributed",
    "hold",
    "checks",
    "projection",
    "schedule",
    "optim",
    "baselines",
    "diagnostics",
    "integrations",
    "jax",
    "cli",
]


def imported_packages(path: Path) -> set[str]:
    packages = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        packages |= {n.split(".")[1] for n in names if n.startswith("nero.") and n.count(".") >= 1}
    return packages & set(ORDER)


def test_imports_go_downwards():
    packages = [
        p for p in PACKAGE.iterdir() if p.name not in ("__init__.py", "py.typed", "__pycache__")
    ]
    assert {p.stem for p in packages} == set(ORDER), "a new package needs its place in ORDER"
    for package in packages:
        allowed = set(ORDER[: ORDER.index(package.stem) + 1])
        for path in [package] if package.is_file() else package.rglob("*.py"):
            upward = imported_packages(path) - allowed
            assert not upward, f"{path.relative_to(PACKAGE)} imports {upward}, which is above it"


def imports_of(path: Path, files: dict[str, Path]) -> set[str]:
    """Return the modules of ``files`` that a file imports anywhere.

    Imports inside functions and under TYPE_CHECKING count: deferring an import hides a cycle, and does not
    remove it. Packages do not count as imported by their own submodules.
    """
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.relative_to(PACKAGE)} has a relative import"
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {name if name in files else str(node.module) for name in submodules}
    return names & files.keys()


def import_cycle(root: Path) -> list[str]:
    """Return one import cycle below ``root``, or an empty list."""
    files = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in root.rglob("*.py")
    }
    try:
        TopologicalSorter({name: imports_of(path, files) for name, path in files.items()}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_import_cycles():
    assert not import_cycle(PACKAGE.parent)


@pytest.mark.parametrize(
    "deferred",
    [
        "import a.first",
        "from a import first",
        "from a.first import x",
        "def f():\n    from a.first import x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a.first import x",
    ],
)
def test_import_cycles_are_found(tmp_path, deferred):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "__init__.py").write_text("from a.first import x\n")
    (tmp_path / "a" / "first.py").write_text("import a.second\nx = 1\n")
    second = tmp_path / "a" / "second.py"
    second.write_text("import torch\n")
    assert not import_cycle(tmp_path)
    second.write_text(f"{deferred}\n")
    assert {*import_cycle(tmp_path)} == {"a.first", "a.second"}


def test_the_library_imports_no_other_distribution():
    for path in PACKAGE.rglob("*.py"):
        assert not re.search("nero_lab|nero_tools", path.read_text()), path


def test_importing_nero_needs_torch_alone():
    """What is imported for someone on one GPU: no optional package, and no distributed engine."""
    code = (
        "import sys, torch; before = set(sys.modules); from nero import *; "
        "print(*{m.split('.')[0] for m in set(sys.modules) - before}, "
        "*(m for m in set(sys.modules) - before if m.startswith('torch.distributed')))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    third_party = set(printed.stdout.split()) - {"nero"} - set(sys.stdlib_module_names)
    assert not {m for m in third_party if m != "torch"}, third_party


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_command_says_what_it_is_without_torch(option: str) -> None:
    """Importing torch takes seconds."""
    code = f"""
import sys
from nero.cli import main
try:
    main(["{option}"])
finally:
    assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_every_public_name_is_found_and_listed():
    assert set(nero.__all__) <= set(dir(nero))
    assert all(getattr(nero, name) is not None for name in nero.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Neroo'"):
        _ = nero.Neroo  # type: ignore[attr-defined]
