"""One broken kernel of each kind: the self-test fails, and says what is wrong."""

from contextlib import contextmanager

import pytest
import torch

from nero.backends.triton import trust
from nero.backends.triton.launch import TritonBackend, Variant
from nero.backends.triton.selftest import self_test
from tests.emulated_gpu.driver import emulated_gpu
from tests.emulated_gpu.ptx import Address, read_instruction

pytest.importorskip("triton")
FLOAT32 = Variant(torch.device("cpu"), torch.float32, stochastic=False)
STOCHASTIC = Variant(torch.device("cpu"), torch.bfloat16, stochastic=True)


@contextmanager
def broken(edits, variant=FLOAT32, architecture=80):
    """Yield the emulated GPU, with a kernel in which ``edits`` returns other instructions."""
    with emulated_gpu(architecture) as gpu:
        assert self_test(variant).passed
        emulator = gpu.emulator()
        original = [*emulator.kernel.code]
        changed = [(i, edits(ins)) for i, ins in enumerate(original)]
        changed = [(i, ins) for i, ins in changed if ins is not None]
        assert changed, "nothing to break"
        try:
            for i, ins in changed:
                emulator.set(i, ins)
            yield gpu
        finally:
            for i, _ in changed:
                emulator.set(i, original[i])


def test_a_dropped_barrier():
    with broken(lambda ins: read_instruction("mov.b32 _, 0") if ins.op == "bar" else None):
        found = self_test(FLOAT32)
    assert "a race in shared memory" in found.error


def test_an_index_one_too_far():
    def further(ins):
        if not (ins.name.startswith("ld.global.b32") and ins.guard):
            return None
        to, at = ins.operands
        return ins._replace(operands=(to, Address(at.base, at.offset + 4)))

    with broken(further):
        found = self_test(FLOAT32)
    assert "load out of bounds" in found.error
    assert "0 bytes after the end of" in found.error


def test_a_reduction_over_half_a_warp():
    def skipped(ins):
        if ins.op == "shfl" and ins.operands[2] == 16:
            return read_instruction(f"mov.b32 {ins.operands[0]}, {ins.operands[1]}")
        return None

    with broken(skipped):
        found = self_test(FLOAT32)
    # Both halves write a sum to the place of their warp, which are different sums now.
    assert "conflicting stores" in found.error


def test_a_shuffle_of_half_a_warp():
    def half(ins):
        return ins._replace(operands=(*ins.operands[:4], 0xFFFF)) if ins.op == "shfl" else None

    with broken(half):
        found = self_test(FLOAT32)
    assert "a partial warp" in found.error


def test_wrong_rounding():
    """Noise is compared with the rounded part: the other way round, numbers round the wrong way."""

    def reversed_(ins):
        is_noise = (
            ins.op == "setp" and ins.mods[-1] == "f32" and "_round_stochastic" not in ins.text
        )
        if not (is_noise and ins.mods[0] in ("lt", "gt") and ins.line in lines):
            return None
        return ins._replace(mods=({"lt": "gt", "gt": "lt"}[ins.mods[0]], *ins.mods[1:]))

    lines = lines_of("noise < scaled - below")
    with broken(reversed_, STOCHASTIC, 90):
        found = self_test(STOCHASTIC)
    assert found.error is None
    assert "two tiles of elements" in {each.case for each in found.differences}
    assert {each.tensor for each in found.differences} <= {"weight", "exp_avg"}
    assert "stochastic rounding" in str(found)


def lines_of(text):
    """Return the place of a line of the kernels, as PTX names it."""
    from pathlib import Path

    from nero.backends.triton import kernels

    lines = Path(kernels.__file__).read_text().splitlines()
    (number,) = (i for i, line in enumerate(lines, 1) if text in line)
    return {f"kernels.py:{number}:{column}" for column in range(1, 200)}


class TestStaleCache:
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("NERO_CACHE", str(tmp_path))
        trust.forget()
        yield
        trust.forget()

    def wrong(self, ins):
        return ins._replace(op="sub") if ins.name == "add.rn.f32" else None

    def test_a_verdict_on_another_kernel(self, monkeypatch):
        """The verdict names the sources: those of another kernel are tested again, and it fails."""
        with emulated_gpu(80):
            assert trust.verdict(FLOAT32).passed
            trust.forget()
            assert trust.verdict(FLOAT32) is None, "the verdict is on disk"
        trust.forget()
        monkeypatch.setattr(trust, "_digest", lambda: "another kernel")
        with broken(self.wrong):
            found = trust.verdict(FLOAT32)
        assert not found.passed
        assert "conflicting stores" in str(found)

    def test_a_table_of_other_addresses(self, monkeypatch):
        table = TritonBackend._table

        def stale(self, key):
            shapes = [(variant, len(entries)) for variant, entries in key]
            for kept in self._tables:
                if [(variant, len(entries)) for variant, entries in kept] == shapes:
                    return self._tables[kept]
            return table(self, key)

        monkeypatch.setattr(TritonBackend, "_table", stale)
        with emulated_gpu(80):
            found = self_test(FLOAT32)
        # The old addresses belong to no tensor of this step, which only the emulator can know.
        assert "out of bounds" in found.error
