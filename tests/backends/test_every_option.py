"""Every option of the list changes in mid-training, on every backend, and none of them ignores it.

A new field of `Hyper` fails here until it has an entry in `CHANGES`, and then for every backend that
forgets it.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from backends import every_option
from backends.every_option import CHANGES, COMBINED, TOLERANCE, VISIBLE, distance, trajectory
from nero import Nero
from nero.backends import cpu
from nero.core.spec import Hyper
from tests.distributed.ranks import on_ranks

IS_INTERPRETED = "TRITON_INTERPRET" in os.environ
needs_kernel = pytest.mark.skipif(cpu.missing() is not None, reason=str(cpu.missing()))
needs_interpreter = pytest.mark.skipif(
    not IS_INTERPRETED, reason="run in a process of its own, by test_triton_in_the_interpreter"
)
# The interpreter computes with numpy, which remarks on every NaN.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")


def compiled(optimizer: Nero) -> Callable[[], Any]:
    torch.compiler.reset()
    return torch.compile(optimizer.step, backend="eager")


def interpreted(optimizer: Nero) -> Callable[[], Any]:
    def step() -> None:
        with every_option.triton_steps(optimizer):
            optimizer.step()

    return step


def eager(optimizer: Nero) -> Callable[[], Any]:
    return optimizer.step


BACKENDS = {
    "plain": (False, eager),
    "kernel": (True, eager),
    "plain compiled": (False, compiled),
    "kernel compiled": (True, compiled),
    "triton": (None, interpreted),
}


@cache
def expected(name: str) -> list[list[Tensor]]:
    return every_option.expected_trajectory(name)


def test_every_option_has_a_change():
    wanted = {"lr", *Hyper._fields}
    assert wanted == set(CHANGES), (
        f"options without an entry in tests/backends/every_option.py: {sorted(wanted - set(CHANGES))}; "
        f"entries without an option: {sorted(set(CHANGES) - wanted)}"
    )


def test_combined_changes_have_every_option_and_each_is_visible():
    """So one that is ignored is noticed among the others, even by the parameters that are compiled."""
    combined = [option for name in COMBINED for option in every_option.changed_options(name)]
    assert sorted(combined) == sorted(CHANGES)
    for name, change in COMBINED.items():
        for option in every_option.changed_options(name):
            without = every_option.expected_trajectory(name, without=option)
            for num in (None, NUM_COMPILED):
                pair = ([step[:num] for step in each] for each in (expected(name), without))
                assert distance(*pair) >= VISIBLE[change.dtype], (name, option)


# Compiling takes seconds per parameter; the first three are rows, rows and a gain.
NUM_COMPILED, NUM_GROUPS_COMPILED = 3, 2
FAST = {"plain": (), "kernel": needs_kernel}
SLOW = {"plain compiled": (), "kernel compiled": needs_kernel, "triton": needs_interpreter}


def cases() -> list[Any]:
    """Each option by itself, where that is fast; elsewhere several at once, and the others if asked for."""
    made = []
    for names, backends, marks in (
        (CHANGES, FAST, ()),
        (COMBINED, SLOW, ()),
        (CHANGES, SLOW, (pytest.mark.slow,)),
    ):
        for name in names:
            for backend, needs in backends.items():
                own = (needs,) if needs else ()
                made.append(
                    pytest.param(name, backend, marks=(*own, *marks), id=f"{name}-{backend}")
                )
    return made


@pytest.mark.parametrize(("name", "backend_name"), cases())
def test_a_change_in_mid_training_is_obeyed(name, backend_name):
    fused, step_of = BACKENDS[backend_name]
    dtype = every_option.change_of(name).dtype
    num_groups = NUM_GROUPS_COMPILED if step_of is compiled else None
    ours = trajectory(name, fused=fused, step_of=step_of, num_groups=num_groups)
    assert distance(ours, expected(name)) <= TOLERANCE[dtype], f"{backend_name} ignores {name}"
    # What the change does, so that the line above can fail.
    unchanged = trajectory(name, fused=False, is_changed=False, num_groups=num_groups)
    assert distance(ours, unchanged) >= VISIBLE[dtype], f"{name} changes nothing here"


# tests/distributed/test_same_bits.py holds sharded bfloat16 weights to one process.
NOT_SHARDED = ("stochastic_rounding", "seed")


@pytest.mark.skipif(IS_INTERPRETED, reason="needs nothing of Triton")
@pytest.mark.parametrize(
    "names",
    [
        ("combined rule", "combined state", "direction"),
        pytest.param([name for name in CHANGES if name not in NOT_SHARDED], marks=pytest.mark.slow),
    ],
    ids=["combined", "each"],
)
def test_ranks_that_share_neurons_obey_changes(names):
    on_ranks(2, _check_shared, names)


def _check_shared(names: Sequence[str]) -> None:
    mesh = init_device_mesh("cpu", (2,))

    def place(tensor: Tensor, dim: int) -> Tensor:
        return distribute_tensor(tensor, mesh, [Shard(dim)])

    for name in names:
        for fused in (False, None):
            ours = trajectory(name, fused=fused, place=place)
            assert distance(ours, expected(name)) <= TOLERANCE[torch.float32], (name, fused)


class TestFused:
    """What it changes is who takes the step."""

    @pytest.mark.parametrize("step_of", [eager, compiled])
    @pytest.mark.parametrize(("before", "after"), [(False, True), (True, False), (False, None)])
    @needs_kernel
    def test_a_change_in_mid_training_is_obeyed(self, before, after, step_of, monkeypatch):
        taken = []
        kernel = cpu.CpuBackend.step_
        monkeypatch.setattr(
            cpu.CpuBackend, "step_", lambda self, updates: (taken.append(1), kernel(self, updates))
        )
        optimizer = Nero(every_option.problem(torch.float32)[:2], fused=before)
        step_ = step_of(optimizer)
        for is_kernel in (before, after):
            for group in optimizer.param_groups:
                group["fused"] = is_kernel
            taken.clear()
            for step in range(2):
                every_option.set_grads(optimizer, CHANGES["lr"], step)
                step_()
            assert len(taken) == (0 if is_kernel is False else 2)


@pytest.mark.skipif(IS_INTERPRETED, reason="this is the process of its own")
@pytest.mark.parametrize(
    ("selected", "names"),
    [("not slow", COMBINED), pytest.param("slow", CHANGES, marks=pytest.mark.slow)],
)
def test_triton_in_the_interpreter(selected, names):
    pytest.importorskip("triton")
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short", "-k", "triton")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", __file__, *options, "-m", selected],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(names)} passed" in done.stdout
