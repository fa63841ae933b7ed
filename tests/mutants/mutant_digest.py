"""What a verdict on a mutant rests on: the edit, the edited file, and all that its tests consist of."""

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutants.mutant import ROOT, Mutant

NO_PACKAGES: Mapping[str, str] = {}


def digest_of(mutant: Mutant, root: Path = ROOT) -> str:
    """Tell whether a verdict is that of this very edit, of this very file, by these very tests."""
    digest = hashlib.sha256(repr(astuple(mutant)).encode())
    for path in [root / mutant.file, *sorted(files_of(mutant.tests, root))]:
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(_content(path) if path.is_file() else b"is missing")
    return digest.hexdigest()[:12]


def state_of(mutant: Mutant, verdicts: Mapping[str, Mapping[str, Any]], root: Path = ROOT) -> str:
    """Return a mutant's verdict, or ``"stale"`` if what it rests on has changed, or ``"not run"``."""
    found = verdicts.get(mutant.name)
    if found is None:
        return "not run"
    return str(found["result"]) if found["digest"] == digest_of(mutant, root) else "stale"


def files_of(
    tests: Iterable[str], root: Path = ROOT, packages: Mapping[str, str] = NO_PACKAGES
) -> set[Path]:
    """Return the test files that a selection names, with what they import of the tests.

    A folder stands for all Python files in it. Every ``conftest.py`` on the way up counts, too. Imports of
    packages are followed as well, if the folder that each lies in is given.
    """
    todo: list[Path] = []
    for selected in tests:
        path = root / selected.split("::")[0]
        if path.is_dir():
            todo += sorted(path.rglob("*.py"))
        elif path.suffix == ".py":
            todo.append(path)
    found: set[Path] = set()
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += _imported(path, root, packages)
            folders = [path.parent, *path.parent.parents]
            around = [folder / "conftest.py" for folder in folders[: folders.index(root) + 1]]
            todo += [each for each in around if each.is_file()]
    return found


def _imported(path: Path, root: Path, packages: Mapping[str, str]) -> Iterator[Path]:
    """Yield the modules of the tests, and of packages, that a file imports, as pytest finds them."""
    folders = (root, root / "tests", path.parent)
    for module in _modules(path) if path.is_file() else ():
        parts = module.split(".")
        package = packages.get(parts[0])
        for folder in folders if package is None else (root / package,):
            for file in (
                folder.joinpath(*parts).with_suffix(".py"),
                folder.joinpath(*parts, "__init__.py"),
            ):
                if file.is_file() and (package is not None or root / "tests" in file.parents):
                    yield file


def _modules(path: Path) -> Iterator[str]:
    """Yield all modules that a file may import; of ``from a import b``, both ``a`` and ``a.b``."""
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _parsed(path: Path) -> ast.Module:
    return _parse(_content(path))


@cache
def _parse(content: bytes) -> ast.Module:
    return ast.parse(content)


def _content(path: Path) -> bytes:
    return _read(path, path.stat().st_mtime_ns)


@cache
def _read(path: Path, _changed: int) -> bytes:
    return path.read_bytes()
