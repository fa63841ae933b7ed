"""Names that docstring examples may use, data sets, and the snippets of README.md and docs/ as tests."""

import contextlib
import doctest
import io
import os
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from sybil import Example
from sybil.document import Document
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser
from torch import nn

import nero
import nero.functional
import nero.optim.prepared
from nero.backends import cpu
from tests.integrations.frameworks import import_frameworks

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the workers share the cores already

# What needs a framework has a job of its own, `make integrations` and `make jax`; the core needs none.
_NEEDS = {
    "lightning": ("tests/integrations", "src/nero/integrations", "docs/how-to/trainers.md"),
    "optax": ("src/nero/jax", "docs/how-to/jax.md"),
}


# `make docs` runs the notebooks; two build hooks are copies, and one module of a name is enough.
collect_ignore = ["docs/notebooks", "lab/hatch_build.py", "tools/hatch_build.py"]
# They import the benchmark that runs them.
collect_ignore += ["tools/submissions"]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what needs a framework, unless it is installed."""
    around = (collection_path, *collection_path.parents)
    for framework, paths in _NEEDS.items():
        if any(Path(__file__).parent / path in around for path in paths):
            if find_spec(framework) is None:
                return True
            if framework == "lightning":
                import_frameworks()
    return None


_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, object]) -> None:
    torch.manual_seed(0)
    doctest_namespace.update(torch=torch, nn=nn, nero=nero)
    doctest_namespace.update({n: getattr(nero.functional, n) for n in nero.functional.__all__})


# What `fused=None` picks, in the folders that ask whether the update is right and lawful.
BACKENDS = ("plain", "cpu kernel")
FOLDERS = {"peers", "properties", "reference", "rules"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of the core against every backend."""
    if metafunc.definition.path.parent.name in FOLDERS:
        metafunc.parametrize("backend", BACKENDS, indirect=True, scope="session")


# Used by every test, so that it can be parametrised from above; without a parameter it does nothing.
@pytest.fixture(scope="session", autouse=True)
def backend(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """Make ``fused=None`` pick the backend of this name."""
    name = getattr(request, "param", None)
    if name is None:
        yield None
        return
    if name == "cpu kernel" and cpu.missing():
        pytest.skip(str(cpu.missing()))
    choose = nero.optim.prepared.backend_name
    if name == "plain":
        nero.optim.prepared.backend_name = lambda weight, *, fused: "plain"
    yield name
    nero.optim.prepared.backend_name = choose


UNPACK = Path(__file__).parents[1] / "shared" / "data" / "unpack.py"


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return ``$NERO_DATA``, or a folder into which the data sets beside the checkout are unpacked."""
    if "NERO_DATA" in os.environ:
        return Path(os.environ["NERO_DATA"])
    if not UNPACK.exists():
        pytest.skip("set NERO_DATA to a folder with the data sets of the lab")
    spec = spec_from_file_location("unpack", UNPACK)
    assert spec is not None
    assert spec.loader is not None
    unpack = module_from_spec(spec)
    spec.loader.exec_module(unpack)
    # One folder for all workers of a parallel run: the first unpacks, the others wait.
    target = tmp_path_factory.getbasetemp().parent / "nero-data"
    with FileLock(f"{target}.lock"):
        if not (target / "complete").exists():
            for name, function in unpack.UNPACK.items():
                function(name, target)
            (target / "complete").touch()
    return target


# The snippets of a page are one test, so that no two workers share them: a ```python block runs in the
# namespace of its page, and a ```text block is what the block before it printed.


def _run(example: Example) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        PythonEvaluator()(example)
    example.namespace["_printed"] = printed.getvalue()


def _compare(example: Example) -> str | None:
    want, got = str(example.parsed), example.namespace.get("_printed", "")
    if doctest.OutputChecker().check_output(want, got, _FLAGS):
        return None
    return f"the page says:\n{want}\nbut this was printed:\n{got}"


_python = PythonCodeBlockParser(doctest_optionflags=_FLAGS)
_python.codeblock_parser = CodeBlockParser("python", _run)
_PARSERS = [_python, CodeBlockParser("text", _compare)]


class Snippets(pytest.Item):
    """All snippets of one page, in order."""

    def runtest(self) -> None:
        """Run them in a directory of their own, since some save checkpoints."""
        document = Document.parse(str(self.path), *_PARSERS)
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
            patch.chdir(directory)
            for example in document.examples():
                example.evaluate()


class Page(pytest.File):
    """A page of the documentation."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield its snippets, if it has any."""
        if "```python" in self.path.read_text():
            yield Snippets.from_parent(self, name="snippets")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect README.md and the pages of docs/."""
    here = Path(__file__).parent
    if file_path == here / "README.md" or (
        file_path.suffix == ".md" and here / "docs" in file_path.parents
    ):
        return Page.from_parent(parent, path=file_path)
    return None
