"""What `pip install nero-tools` brings, and what of it imports what."""

import ast
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import nero_tools
from nero.cli.dispatch import TOOLS

PACKAGE = Path(nero_tools.__file__).parent
# What all tools share; the tools themselves do not import each other, except those that run another.
SHARED = {"arguments", "models", "optimizers", "progress"}
APART = {"bench", "gpu_kit", "plan", "sinks", "speedrun", "theory"}
RUNS = {"gpu_kit": {"bench"}}


def test_it_needs_nero_and_nothing_else():
    core = [r for r in metadata.requires("nero-tools") or [] if "extra ==" not in r]
    assert core == ["nero-optim"]


def test_the_command_knows_every_tool():
    files = metadata.distribution("nero-tools").entry_points.select(group="nero.commands")
    assert {found.name for found in files} == {*TOOLS}
    for found in files:
        command = found.load()
        assert command.__doc__
        assert callable(command.add_arguments)
        assert callable(command.run)


def imported(path: Path) -> set[str]:
    """Return the parts of the package, and the other packages, that a file imports."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import, which this test does not read"
            assert node.module is not None
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    parts = {name.split(".")[1] for name in names if name.startswith("nero_tools.")}
    return parts & (SHARED | APART) | {name for name in names if name.startswith("nero_lab")}


def test_tools_import_what_they_share_and_not_each_other():
    found = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert found == SHARED | APART | {"__init__"}, "a new tool needs its place in APART"
    for name in APART:
        for path in (PACKAGE / name).rglob("*.py"):
            others = imported(path) - SHARED - {name} - RUNS.get(name, set())
            assert not others, f"{path.relative_to(PACKAGE)} imports {others}"
    for name in SHARED:
        others = imported(PACKAGE / f"{name}.py") - SHARED
        assert not others, f"{name}.py imports {others}"


def test_importing_the_tools_needs_torch_alone():
    """Packages of the extras are imported when they are used."""
    code = (
        "import sys, torch, nero.optim; before = set(sys.modules); "
        f"from nero_tools import {', '.join(APART)}; "
        "print(*{m.split('.')[0] for m in set(sys.modules) - before})"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    others = set(printed.stdout.split()) - {"nero", "nero_tools", "torch"}
    assert not others - set(sys.stdlib_module_names), others
