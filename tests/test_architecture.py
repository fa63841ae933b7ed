"""Is docs/architecture.md true? A real construction, a real step on every path, and who called what."""

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import nn

import nero
from nero.backends import cpu
from nero.core.neurons import ROLES
from nero.core.rule import Turn, Updated
from nero.core.spec import STATE, Hyper
from nero.optim.turning import Turning
from tests.contract.optimizer_table import TABLE
from tests.distributed.ranks import on_ranks
from tests.gold.interpreter import step_in_interpreter
from tests.test_imports import ORDER

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PATHS = ("plain", "cpu", "triton", "sharded", "flat")
# Functions of ours before the kernel, `step` included. The sharded path has one more: it stops between
# the sums and the new rows, and each half is dealt out to threads.
LIMIT = 5
MORE = {"flat": 2}  # ranges are sorted by process group, and sums of boxes go into one buffer

# What is watched: where the rule or a kernel begins, and what communicates.
RULE = ["nero.core.gram.gram", "nero.core.rule.rows_of", "nero.core.rule.turn_rows"]
RULE += ["nero.core.rule.turn_neurons", "nero.core.rule.turn_elements", "nero.core.rule.apply_turn"]
CPU = [
    f"nero.backends.cpu.kernel.{name}" for name in ("walk_rows", "walk_columns", "walk_elements")
]
CPU += [
    f"nero.backends.cpu.kernel.{name}" for name in ("sum_columns", "write_columns", "add_counts")
]
TRITON = [f"nero.backends.triton.kernels.{name}" for name in ("advance_kernel", "step_kernel")]
# Where a new parameter's layout, options, neurons, holder, backend and state come from.
CONSTRUCTION = [
    "nero.layout.owners.stated_layouts",
    "nero.layout.groups.grouped",
    "nero.core.presets.resolve_options",
    "nero.core.neurons.neurons_from_options",
    "nero.hold.hold",
    "nero.backends.backend_name",
    "nero.optim.state.new_state",
    "nero.checks.trained.warn_if_trained",
    "nero.projection.project_held_",
]
COLLECTIVES = ["torch.distributed._functional_collectives.all_reduce"]

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="frames have no qualified names before Python 3.11"
)


@pytest.mark.parametrize("path", ["construction", *PATHS])
def test_it_calls_what_the_page_lists(path, tmp_path):
    called = RECORDERS[path](tmp_path)
    listed = chains_on_page(path)
    assert called == listed, (
        f"docs/architecture.md, {path}: not on the page {shown(called - listed)}; "
        f"on the page, but not called {shown(listed - called)}"
    )


def test_a_new_parameter_is_worked_out_once():
    """Each question about it is asked in one place only; a preset decides twice, before and after roles."""
    leaves = [chain[-1] for chain in chains_on_page("construction")]
    leaves.remove("nero.core.presets.resolve_options")
    assert sorted(leaves) == sorted(CONSTRUCTION)


@pytest.mark.parametrize("path", PATHS)
def test_paths_are_short(path):
    for chain in chains_on_page(path):
        assert chain[:2] == (
            "nero.optim.base.RelativeOptimizer.step",
            "nero.optim.turning.Turning.step",
        )
        assert len(chain) - 1 <= LIMIT + MORE.get(path, 0), shown([chain])


def test_the_page_names_every_package_option_and_state_tensor():
    packages = re.findall(r"^\| `(\w+)` \|", PAGE, re.M)
    assert [package for package in packages if package in ORDER] == ORDER
    for name in (*Hyper._fields, *STATE, *ROLES):
        assert f"`{name}`" in PAGE, name


def test_options_are_arguments_with_the_same_defaults():
    arguments = inspect.signature(nero.Nero).parameters
    defaults = nero.Nero(nn.Linear(3, 2)).defaults
    for name, default in Hyper._field_defaults.items():
        assert name in arguments, f"{name} is in Hyper, and no argument of Nero"
        assert arguments[name].default in (default, None), name  # None is the preset's
        assert defaults[name] == default, name


def test_options_are_in_the_table_of_the_conformance_tests():
    (row,) = [entry for entry in TABLE if entry.name == "Nero"]
    tried = {name for options in (*row.inputs, *row.variants) for name in options}
    assert set(Hyper._fields) <= tried | set(row.group_options)


def test_what_the_page_names_exists():
    """Files and tests that the page sends people to."""
    paths = re.findall(r"`((?:src|lab|tools|tests|docs)/[\w/.-]+)", PAGE)
    assert len(paths) > 20
    for path in paths:
        assert (ROOT / path).exists(), path
    for path, name in re.findall(r"`((?:(?:lab|tools)/)?tests/[\w/.]+)::(\w+)`", PAGE):
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"
    classes = {"Hyper": Hyper, "Turn": Turn, "Turning": Turning, "Updated": Updated}
    attributes = re.findall(r"`([A-Z]\w+)\.(\w+)`", PAGE)
    assert {owner for owner, _ in attributes} == {*classes}, "add the class to this test"
    for owner, name in attributes:
        assert hasattr(classes[owner], name), f"{owner}.{name}"


def test_the_picture_is_what_its_script_draws():
    spec = importlib.util.spec_from_file_location(
        "architecture", ROOT / "docs" / "images" / "architecture.py"
    )
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    drawn = script.picture()
    assert drawn == (ROOT / "docs" / "images" / "architecture.svg").read_text()
    for name in re.findall(r'class="name"[^>]*>([\w.]+)\(\)<', drawn):
        assert re.search(rf"\b{re.escape(name)}\b", PAGE), f"{name} is drawn, and not on the page"


# --- the page ---


def chains_on_page(path):
    """Every way from the root to a leaf of the tree of calls under the heading of a path."""
    block = re.search(rf"^### {path}\b.*?^```calls\n(.*?)^```", PAGE, re.M | re.S | re.I)
    assert block is not None, f"docs/architecture.md has no tree of calls for {path}"
    lines, above, chains = block[1].splitlines(), [], set()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        depth = indent(line)
        above = [*above[:depth], line.strip()]
        if not following or indent(following) <= depth:
            chains.add(tuple(above))
    return chains


def indent(line):
    return (len(line) - len(line.lstrip())) // 2


def shown(chains):
    return [" > ".join(chain) for chain in sorted(chains)]


# --- a step ---


class Watched:
    """Stands for a function, or for a kernel that Triton launches on a grid, and notes its callers."""

    def __init__(self, name, original, chains):
        self._name, self._original, self._chains = name, original, chains

    def __call__(self, *args, **kwargs):
        self._note(sys._getframe(1))
        return self._original(*args, **kwargs)

    def __getitem__(self, grid):
        self._note(sys._getframe(1))
        return self._original[grid]

    def _note(self, frame):
        chain = []
        while frame is not None:
            module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
            # Ours, and neither a comprehension nor a function of the rule that calls another one.
            if module.startswith("nero.") and not frame.f_code.co_name.startswith("<"):
                chain.insert(0, f"{module}.{name}")
            frame = frame.f_back
        if not chain[-1].startswith(("nero.core.rule.", "nero.core.gram.")):
            self._chains.add((*chain, self._name))


def watch(names, step):
    """Call ``step``, and return who called the functions of these names."""
    chains = set()
    originals = {}
    for full in names:
        module, _, name = full.rpartition(".")
        originals[full] = getattr(importlib.import_module(module), name)
    places = [
        m for name, m in [*sys.modules.items()] if name.startswith(("nero", "torch.distributed"))
    ]
    with ExitStack() as patches:
        for full, original in originals.items():
            # Wherever it has been imported to, under whatever name.
            for module in places:
                for name, value in [*vars(module).items()]:
                    if value is original:
                        watched = Watched(full, original, chains)
                        patches.enter_context(mock.patch.object(module, name, watched))
        step()
    return chains


def build(**options):
    """A layer stored in rows, one in columns, a bias and a gain, ready to step."""
    torch.set_num_threads(1)  # a helper thread's stack does not begin with the step
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.ConvTranspose1d(5, 4, 3))
    optimizer = nero.Nero(model, **options)
    for param in model.parameters():
        param.grad = torch.randn_like(param)
    return optimizer


def record_construction(_):
    return watch(CONSTRUCTION, build)


def record_plain(_):
    return watch(RULE, build(fused=False).step)


def record_cpu(_):
    if cpu.missing():
        pytest.skip(str(cpu.missing()))
    return watch(RULE + CPU, build().step)


def record_triton(folder):
    if find_spec("triton") is None:
        pytest.skip("triton is not installed")
    # Triton reads the variable when it is imported.
    code = f"from tests import test_architecture as t; t.write_triton({str(folder / 'chains')!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return read_chains(folder / "chains")


def write_triton(path):
    optimizer = build()
    write_chains(path, watch(RULE + TRITON, lambda: step_in_interpreter(optimizer)))


def record_sharded(folder):
    if cpu.missing():
        pytest.skip(str(cpu.missing()))
    on_ranks(2, write_sharded, folder)
    ranks = [read_chains(folder / str(rank)) for rank in range(2)]
    assert ranks[0] == ranks[1]
    return ranks[0]


def write_sharded(folder):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard

    torch.manual_seed(0)
    layer = fully_shard(nn.Linear(6, 5, bias=False), shard_placement_fn=lambda param: Shard(1))
    optimizer = nero.Nero(layer)
    layer.weight.grad = torch.ones_like(layer.weight)
    chains = watch(RULE + CPU + COLLECTIVES, optimizer.step)
    write_chains(folder / str(torch.distributed.get_rank()), chains)


def record_flat(folder):
    if cpu.missing():
        pytest.skip(str(cpu.missing()))
    on_ranks(2, write_flat, folder)
    ranks = [read_chains(folder / str(rank)) for rank in range(2)]
    assert ranks[0] == ranks[1]
    return ranks[0]


def write_flat(folder):
    from torch.distributed.fsdp import FullyShardedDataParallel

    torch.manual_seed(0)
    layer = nn.Linear(6, 5, bias=False)
    wrapped = FullyShardedDataParallel(layer, use_orig_params=True, device_id=torch.device("cpu"))
    optimizer = nero.Nero(wrapped)
    for param in wrapped.parameters():
        param.grad = torch.ones_like(param)
    chains = watch(RULE + CPU + COLLECTIVES, optimizer.step)
    write_chains(folder / str(torch.distributed.get_rank()), chains)


def write_chains(path, chains):
    Path(path).write_text(json.dumps(sorted(chains)))


def read_chains(path):
    return {tuple(chain) for chain in json.loads(path.read_text())}


RECORDERS = {
    "construction": record_construction,
    "plain": record_plain,
    "cpu": record_cpu,
    "triton": record_triton,
    "sharded": record_sharded,
    "flat": record_flat,
}
