"""The Triton backend without a GPU: its kernels in the interpreter, and compiled for three GPUs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from backends import triton_in_interpreter as cases
from nero.backends.triton import launch as backend
from nero.backends.triton.table import INTEGERS, NUMBERS, Phase
from nero_tools.bench.gpu.machine_code import compiled_kernel

pytest.importorskip("triton")


def python(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Processes, which two workers can share. tests/emulated_gpu breaks kernels on purpose too, and is faster.
@pytest.mark.parametrize(
    ("name", "selected", "marked"),
    [
        ("triton_in_interpreter", "TestAgreement", "not slow"),
        ("triton_in_interpreter", "not TestAgreement", "not slow"),
        pytest.param("trust_in_interpreter", "TestBroken", "not slow", marks=pytest.mark.slow),
        ("trust_in_interpreter", "not TestBroken", "not slow"),
        pytest.param("triton_in_interpreter", "", "slow", marks=pytest.mark.slow),
        pytest.param("trust_in_interpreter", "", "slow", marks=pytest.mark.slow),
    ],
)
def test_in_the_interpreter(name, selected, marked):
    path = Path(__file__).with_name(f"{name}.py")
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short")
    options += ("-k", selected, "-m", marked)
    last = python("-m", "pytest", str(path), *options, TRITON_INTERPRET="1").splitlines()[-1]
    assert " passed" in last
    assert "skipped" not in last


@pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="the interpreter compiles nothing")
@pytest.mark.parametrize(
    ("target", "dtype", "stochastic", "momentum", "phase", "wide_load"),
    [
        (80, "float32", False, None, Phase.WHOLE, "ld.global.v4.b32"),
        *(
            pytest.param(*variant, Phase.WHOLE, "ld.global.v4.b32", marks=pytest.mark.slow)
            for variant in (
                (80, "float32", False, "float32"),
                (80, "float32", False, "bfloat16"),
                (90, "bfloat16", True, "float32"),
            )
        ),
        (90, "float32", False, None, Phase.SUMS, "ld.global.v4.b32"),
        (90, "bfloat16", True, "float32", Phase.ROWS, "ld.global.v4.b32"),
        ("gfx942", "float16", True, None, Phase.WHOLE, "global_load_dwordx4"),
    ],
)
def test_kernels_compile(target, dtype, stochastic, momentum, phase, wide_load):
    import triton.language as tl

    from nero.backends.triton.kernels import advance_kernel, step_kernel

    average = momentum and getattr(tl, momentum)
    constants = {"DTYPE": getattr(tl, dtype), "STOCHASTIC": stochastic, "AVERAGE": average}
    constants |= {"PHASE": int(phase), "KEPT": 0}
    is_cuda = isinstance(target, int)
    advance = compiled_kernel(advance_kernel, {"BLOCK": 128}, target, num_tensors="i32")
    step = compiled_kernel(step_kernel, constants, target)
    for compiled in (advance, step):
        assert compiled.asm["cubin" if is_cuda else "hsaco"]
    text = step.asm["ptx" if is_cuda else "amdgcn"]
    assert wide_load in text, "aligned rows are read 128 bits at a time"
    assert "st.local" not in text, "registers must do"


def test_kernels_read_every_column_that_the_table_has():
    """A new option is a column of the table at once; a kernel that does not read it has forgotten it."""
    from nero.backends.triton import kernels

    for names in (INTEGERS, NUMBERS):
        for i, name in enumerate(names):
            if name not in ("stochastic_rounding", "momentum_dtype"):  # they tell which kernel
                assert getattr(kernels, name.upper()).value == i, name


def test_importing_the_backend_does_not_import_triton_or_numpy():
    code = (
        "import sys, torch; had = {m for m in ('triton', 'numpy') if m in sys.modules}; "
        "import nero.backends.triton; print({m for m in ('triton', 'numpy') if m in sys.modules} - had)"
    )
    assert python("-c", code).strip() == "set()"


class TestWhyNot:
    @pytest.fixture(autouse=True)
    def _forget(self, monkeypatch):
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
        backend.why_not_device.cache_clear()
        yield
        backend.why_not_device.cache_clear()

    def test_names_the_cpu(self):
        assert backend.why_not(cases.balanced((4, 5), (1,))) == "it is on the CPU"

    def test_names_a_missing_triton(self, monkeypatch):
        monkeypatch.setattr(backend, "find_spec", lambda name: None)
        assert backend.why_not(cases.balanced((4, 5), (1,))) == "triton is not installed"

    def test_names_a_subclass(self):
        task = cases.balanced((4, 5), (1,))
        weight = torch.Tensor._make_subclass(type("Sharded", (torch.Tensor,), {}), task.weight)
        assert "Sharded" in backend.why_not(task._replace(weight=weight))

    def test_names_another_device(self):
        task = cases.balanced((4, 5), (1,))
        task = task._replace(weight=task.weight.to("meta"), grad=task.grad.to("meta"))
        assert backend.why_not(task) == "it is on meta"

    def test_names_an_old_gpu(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (6, 1))
        assert "Volta" in backend.why_not_device(torch.device("cuda", 0))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
        assert backend.why_not_device(torch.device("cuda", 1)) is None

    def test_what_it_names_takes_the_plain_backend(self):
        task = cases.balanced((4, 5), (1,))
        task.grad.normal_()
        other = cases.twin(task)
        backend.TritonBackend().step_([task])
        cases.plain.step_([other])
        assert torch.equal(task.weight, other.weight)


def test_a_copy_during_the_capture_of_a_graph_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="set_to_none=False"):
        backend._to_device(torch.zeros(3), torch.device("cuda"))
