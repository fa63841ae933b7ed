"""`nero speedrun`: what it replaces, what it refuses, and that its result trains."""

import ast
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import nero
from nero.cli.arguments import CommandError
from nero_tools.speedrun.entry import make_entry, optimizer_source, read_baseline

BASELINE = Path(__file__).with_name("stand_in.txt").read_text()
OURS = "optimizers = [Nero(groups, lr=0.03, momentum=0.9, beta=0.99)]"
THEIRS = (
    "import nero\n    optimizers = [nero.Nero(model, preset={!r}, lr=0.03, stochastic_rounding=True, "
    "fused=False)]"
)


@pytest.fixture
def one_rank(monkeypatch):
    """Return a function that runs a text in this process, and returns its variables."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    for name, value in alone.items():
        monkeypatch.setenv(name, value)

    def run(text):
        variables = {"__name__": "__main__"}
        exec(compile(text, "entry.py", "exec"), variables)
        return variables

    return run


def run_two_ranks(text, folder):
    """Run a text in two processes, and return each rank's losses and weights."""
    (folder / "entry.py").write_text(text)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    shared |= {"SAVE_TO": str(folder), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "entry.py"],
            cwd=folder,
            env={**os.environ, **shared, "RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [rank.wait(timeout=300) for rank in ranks] == [0, 0]
    return [torch.load(folder / f"2-{rank}.pt") for rank in range(2)]


def test_only_two_sections_change():
    entry = make_entry(BASELINE, preset="polar", num_steps=12)
    sections, num_steps = read_baseline(BASELINE)
    again, _ = read_baseline(entry)  # an entry has the baseline's structure
    assert num_steps == 12
    changed = {
        old.title
        for old, new in zip(sections, again, strict=True)
        if BASELINE[old.start : old.end] != entry[new.start : new.end]
    }
    assert changed == {"Optimizer", "Init & Optim Hyperparams"}
    assert BASELINE[: sections[0].end] == entry[: sections[0].end]
    assert optimizer_source() in entry


def test_the_entry_imports_torch_and_the_standard_library_alone():
    entry = ast.parse(make_entry(BASELINE, preset="polar", num_steps=12))
    names = set()
    for node in ast.walk(entry):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.split(".")[0])
    assert names - set(sys.stdlib_module_names) == {"torch"}


@pytest.mark.parametrize("preset", ["rows", "polar"])
def test_the_entry_trains_as_the_package_does(preset, one_rank):
    entry = make_entry(BASELINE, preset=preset, num_steps=12, lr=0.03)
    assert OURS in entry
    run = one_rank(entry)
    reference = one_rank(entry.replace(OURS, THEIRS.format(preset)))
    assert isinstance(reference["optimizers"][0], nero.Nero)
    assert run["losses"] == reference["losses"]
    assert run["losses"][-1] < run["losses"][0]
    same = reference["model"].state_dict()
    for name, weight in run["model"].state_dict().items():
        assert torch.equal(weight, same[name]), name


@pytest.mark.slow
def test_two_ranks_train_alike(one_rank, tmp_path):
    entry = make_entry(BASELINE, preset="polar", num_steps=12, lr=0.03)
    (losses, weights), (_, other_weights) = run_two_ranks(entry, tmp_path)
    for name, weight in weights.items():
        assert torch.equal(weight, other_weights[name]), name
    # Each rank rounds its part of the embedding's gradient to bfloat16, and the steps multiply that.
    torch.testing.assert_close(losses, one_rank(entry)["losses"], rtol=0.02, atol=0)


def test_the_schedule_and_learning_rate_are_the_presets(one_rank):
    found = one_rank(make_entry(BASELINE, preset="polar", num_steps=40))
    optimizer = nero.Nero(nn.Linear(4, 3), preset="polar")
    schedule = nero.cosine_schedule(optimizer, num_steps=40)
    for step in range(40):
        found["set_hparams"](step)
        [rate] = {group["lr"] for group in found["optimizers"][0].param_groups}
        assert rate == pytest.approx(
            schedule.get_last_lr()[0], rel=1e-3
        )  # written with four digits
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("class Network", "class Network(", "not Python"),
        ("#              Optimizer               #", "#   Optimiser   #", "sections must include"),
        (
            "set_hparams(step)\n        for",
            "set_hparams(step, 1)\n        for",
            r"call set_hparams\(step\)",
        ),
        ("set_hparams(step)\n        for", "for", "but reads optimizers, train_steps"),
        ("losses = []", "losses, other = [], Signs", "but reads Signs, optimizers"),
        ("self.embed", "self.table", "its Network must have blocks, embed, proj"),
        ("model = Network(", "net = model = Network(", "a `model` from a class"),
        ("train_steps = 12", "train_steps = 3 * 4", "train_steps to a whole number"),
    ],
)
def test_another_structure_is_refused(old, new, reason):
    assert old in BASELINE
    with pytest.raises(CommandError, match=f"not the baseline that the command knows: .*{reason}"):
        make_entry(BASELINE.replace(old, new), preset="polar", num_steps=12)
