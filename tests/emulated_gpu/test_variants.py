"""The compiled kernels against the plain backend: every variant, on three architectures.

Each run has four variants; the others are slow only because compiling them takes long.
"""

import math

import pytest
import torch
from torch import nn

import nero.backends
from nero import Nero
from nero.backends import plain
from nero.backends.triton import selftest, trust
from nero.backends.triton.cases import Case, twin
from nero.backends.triton.launch import TritonBackend, Variant
from nero.backends.triton.selftest import self_test
from nero.backends.triton.table import Phase, kept_lengths
from nero.core.precision import working_dtype
from nero_tools.bench.gpu.machine_code import compiled_kernel, read_code
from tests.emulated_gpu.counts import SHAPES, counted
from tests.emulated_gpu.driver import emulated_gpu
from tests.emulated_gpu.opcode_cases import CASES
from tests.emulated_gpu.ptx import read_instruction
from tests.emulated_gpu.random_updates import random_updates

pytest.importorskip("triton")
CPU = torch.device("cpu")
FLOAT32 = Variant(CPU, torch.float32, stochastic=False)
BFLOAT16 = Variant(CPU, torch.bfloat16, stochastic=True, momentum=torch.bfloat16)
VARIANTS = [
    Variant(CPU, dtype, stochastic, momentum)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    for stochastic in ((False, True) if dtype.itemsize == 2 else (False,))
    for momentum in (None, working_dtype(dtype), torch.bfloat16)
]
VARIANTS += [FLOAT32._replace(shared=True), BFLOAT16._replace(shared=True)]
VARIANTS += [
    variant._replace(kept=length)
    for variant in (FLOAT32, BFLOAT16)
    for length in kept_lengths(
        variant.dtype, stochastic=variant.stochastic, momentum=variant.momentum
    )
]
USUAL = [
    (80, FLOAT32._replace(momentum=torch.bfloat16)),
    (80, FLOAT32._replace(shared=True)),
    (90, BFLOAT16._replace(momentum=None)),
    (100, FLOAT32),
    (80, FLOAT32._replace(kept=4096)),
    (90, BFLOAT16._replace(kept=2048)),
]
RUNS = [
    pytest.param(*run, id=f"sm_{run[0]}-" + "-".join(map(str, run[1][1:])),
                 marks=() if run in USUAL else pytest.mark.slow)
    for run in [*USUAL, *((a, v) for a in (80, 90, 100) for v in VARIANTS if (a, v) not in USUAL)]
]  # fmt: skip


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.mark.skipif("'TRITON_INTERPRET' in __import__('os').environ", reason="compiles nothing")
@pytest.mark.parametrize(("architecture", "variant"), RUNS)
def test_agrees_with_plain(architecture, variant, monkeypatch):
    """Approximate instructions err at random, and half of the self-test's tolerance must do."""
    monkeypatch.setattr(selftest, "_TOLERANCE", selftest._TOLERANCE / 2)
    monkeypatch.setattr(selftest, "_TOLERANCE_64", selftest._TOLERANCE_64 / 2)
    with emulated_gpu(architecture, error=None) as gpu:
        found = self_test(variant)
    assert found.passed, found.error or [str(each) for each in found.differences]
    emulators = [each for (name, _), each in gpu.emulators.items() if name == "step_kernel"]
    for emulator in emulators:
        names = {ins.name for ins in emulator.kernel.code}
        assert untested(names) == set()
        share = len(emulator.executed) / len(emulator.kernel.code)
        # Each half keeps code that only the other needs: 83% and 92% on sm_80.
        assert share >= (0.8 if variant.shared else 0.95), (
            f"{share:.1%} of {len(emulator.kernel.code)} instructions were executed"
        )
    if not variant.kept:
        check_random(variant, architecture)


def untested(names):
    """Return arithmetic instructions without a test in `test_opcodes`."""
    tested = {read_instruction(case.text).name for case in CASES}
    others = (
        "bra",
        "brx",
        "ret",
        "ld",
        "st",
        "mov",
        "cvta",
        "atom",
        "red",
        "shfl",
        "vote",
        "redux",
        "bar",
    )
    return {name for name in names if name.split(".")[0] not in others} - tested


def check_random(variant, architecture):
    updates = random_updates(variant, num=12, seed=architecture)
    cases = [Case(f"{i}: {update.weight.shape}", update) for i, update in enumerate(updates)]
    theirs = [twin(case) for case in cases]
    with emulated_gpu(architecture):
        if variant.shared:
            backend = TritonBackend(keeps_rows=False)
            turns = [*map(plain.turn_of, updates, backend.gram(updates))]
            backend.apply_(updates, turns)
        else:
            TritonBackend(keeps_rows=False).step_(updates)
    different = []
    for case, other in zip(cases, theirs, strict=True):
        terms = selftest._step_plainly(other.update)
        different += map(str, selftest._differences(case, other, terms))
    assert different == []


class TestSelfTest:
    @pytest.mark.parametrize("error", [-1.0, 1.0])
    def test_passes_at_the_limits_of_approximate_instructions(self, error):
        with emulated_gpu(80, error=error):
            found = self_test(FLOAT32)
        assert found.passed, found.error or [str(each) for each in found.differences]

    def test_leaves_room_for_one_more_rounding(self):
        """Of what the row of the largest terms is allowed, one rounding of a term uses half at most."""
        terms = torch.tensor([50.0, 8.5, 1.0])
        allowed = selftest._TOLERANCE * (terms / selftest._CANCELLED).clamp(min=1)
        rounding = 2.0 ** (torch.floor(torch.log2(terms)) - 24)
        assert (rounding <= allowed / 2).all()

    def test_takes_less_than_a_second(self):
        """By its counts: warps of the slowest program, one instruction in 20 cycles at 1 GHz, one SM."""
        with emulated_gpu(80) as gpu:
            found = self_test(FLOAT32)
        num = sum(sum(each.executed.values()) for each in gpu.emulators.values())
        assert found.num_cases > 45
        assert num * 20e-9 < 0.1
        assert sum(gpu.launches.values()) == 10


def test_rows_take_few_instructions_per_weight_and_are_read_once():
    """Each thread computes the coefficients of one neuron, instead of all those of its rows."""
    limits = {16: 150, 27: 350, 32: 80, 48: 120, 64: 80, 100: 190, 128: 160, 256: 80}
    limits |= {2048: 60, 3072: 80, 4096: 60}  # in registers, by programs of more warps
    names = {f"rows of {n}": limit for n, limit in limits.items()}
    rows = counted("float32", FLOAT32, 80, [each for each in SHAPES if each[0] in names])
    assert len(rows) == len(names)
    for row in rows:
        assert row["instructions"] <= names[row["shape"]], row
        # Rows of 27 and 100 share sectors with others.
        most = {"rows of 27": 15.2, "rows of 100": 12.6}.get(row["shape"], 12)
        assert 12 <= row["bytes"] <= most, row


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "stochastic", "momentum"), [("float32", False, "float32"), ("bfloat16", True, None)]
)
def test_what_is_not_kept_would_spill(dtype, stochastic, momentum):
    """Rows of 16,384, with their averages or with noise, are more than a program's registers."""
    import triton.language as tl

    from nero.backends.triton.kernels import step_kernel

    constants = {"DTYPE": getattr(tl, dtype), "STOCHASTIC": stochastic, "PHASE": int(Phase.WHOLE)}
    constants["AVERAGE"] = momentum and getattr(tl, momentum)
    stacks = [
        read_code(
            compiled_kernel(step_kernel, {**constants, "KEPT": length}, 80, kept=length)
        ).stack_bytes
        for length in (8192, 16384)
    ]
    assert stacks[0] == 0 < stacks[1]


def test_polar():
    """A direction is computed before the kernel, which takes it as the gradient."""

    def trained(**options):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 16), nn.Linear(16, 6))
        optimizer = Nero(model, lr=0.05, direction="polar", **options)
        for _ in range(2):
            for param in model.parameters():
                param.grad = torch.randn_like(param)
            optimizer.step()
        return [param.detach() for param in model.parameters()]

    with pytest.MonkeyPatch.context() as patch, emulated_gpu(80) as gpu:
        patch.setitem(nero.backends.KERNELS, "cpu", "triton")
        patch.setattr(trust, "verdict", lambda variant: None)
        patch.setattr(nero.backends.triton, "why_not_device", lambda device: None)
        ours = trained(fused=True)
    assert gpu.launches["step_kernel"] == 2
    for mine, other in zip(ours, trained(fused=False), strict=True):
        torch.testing.assert_close(mine, other, rtol=4e-6, atol=4e-6)
        assert not math.isnan(mine.sum())
