"""Every option of the list changes in mid-training, on every backend, and none of them ignores it.

A new field of `Hyper` fails here until it has an entry in `CHANGES`, and then for every backend that
forgets it.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from backends import every_option
from backends.every_option import CHANGES, TOLERANCE, VISIBLE, distance, trajectory
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


@pytest.mark.parametrize(
    "backend_name",
    [
        "plain",
        pytest.param("kernel", marks=needs_kernel),
        "plain compiled",
        pytest.param("kernel compiled", marks=needs_kernel),
        pytest.param("triton", marks=needs_interpreter),
    ],
)
@pytest.mark.parametrize("name", ["lr", *Hyper._fields])
def test_a_change_in_mid_training_is_obeyed(name, backend_name):
    assert name in CHANGES, f"{name} has no entry in tests/backends/every_option.py"
    fused, step_of = BACKENDS[backend_name]
    dtype = CHANGES[name].dtype
    # Compiling takes seconds per parameter; the first three are rows, rows and a gain.
    num_groups = 2 if step_of is compiled else None
    ours = trajectory(name, fused=fused, step_of=step_of, num_groups=num_groups)
    assert distance(ours, expected(name)) <= TOLERANCE[dtype], f"{backend_name} ignores {name}"
    # What the change does, so that the line above can fail.
    unchanged = trajectory(name, fused=False, is_changed=False, num_groups=num_groups)
    assert distance(ours, unchanged) >= VISIBLE[dtype], f"{name} changes nothing here"


# tests/distributed/test_same_bits.py holds sharded bfloat16 weights to one process.
NOT_SHARDED = ("stochastic_rounding", "seed")


@pytest.mark.skipif(IS_INTERPRETED, reason="needs nothing of Triton")
def test_ranks_that_share_neurons_obey_changes():
    on_ranks(2, _check_shared, [name for name in CHANGES if name not in NOT_SHARDED])


def _check_shared(names: list[str]) -> None:
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
def test_triton_in_the_interpreter():
    pytest.importorskip("triton")
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short", "-k", "triton")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", __file__, *options],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(CHANGES)} passed" in done.stdout
