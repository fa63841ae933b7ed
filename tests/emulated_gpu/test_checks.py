"""Each check of the emulator, on a kernel that fails it and on one that does not."""

# ruff: noqa: E501 (assembly)

import numpy as np
import pytest

from tests.emulated_gpu.ptx import PtxError
from tests.emulated_gpu.snippets import kernel, run

LOAD = "add.s64 %d14, %d16, %d15;\n\tld.global.b64 %d1, [%d14{offset}];"


class TestGlobalMemory:
    def test_out_of_bounds(self):
        run(kernel(LOAD.format(offset="")), np.zeros(32))
        with pytest.raises(
            PtxError,
            match="load out of bounds: 1 of 32 threads; the first is 0 bytes after the end of array 0",
        ):
            run(kernel(LOAD.format(offset="+8")), np.zeros(32))
        with pytest.raises(PtxError, match=r"load out of bounds.*before array 0"):
            run(kernel(LOAD.format(offset="+-8")), np.zeros(32))

    def test_out_of_bounds_unless_guarded(self):
        guarded = "setp.lt.u32 %p1, %r15, 31;\n\tadd.s64 %d14, %d16, %d15;\n\t@%p1 ld.global.b64 %d1, [%d14+8];"
        run(kernel(guarded), np.zeros(32))

    @pytest.mark.parametrize(
        "op", ["st.global.b64 [%d14+8], %d15;", "red.global.add.u64 [%d14+8], %d15;"]
    )
    def test_what_is_written_out_of_bounds(self, op):
        with pytest.raises(PtxError, match="out of bounds"):
            run(kernel(f"add.s64 %d14, %d16, %d15;\n\t{op}"), np.zeros(32))

    def test_misaligned_vector(self):
        aligned = np.zeros(128, np.float32)
        aligned = aligned[(-aligned.ctypes.data // 4) % 4 :]
        body = "mul.wide.u32 %d14, %r15, 4;\n\tadd.s64 %d14, %d16, %d14;\n\tand.b64 %d14, %d14, -16;\n\tld.global.v4.b32 {{%r1, %r2, %r3, %r4}}, [%d14+{}];"
        run(kernel(body.format(0)), aligned)
        with pytest.raises(
            PtxError, match="misaligned load: an address is not a multiple of 16 bytes"
        ):
            run(kernel(body.format(4)), aligned)

    def test_conflicting_stores(self):
        run(kernel("mov.b64 %d1, 7;\n\tst.global.b64 [%d16], %d1;"), np.zeros(1))
        with pytest.raises(PtxError, match="conflicting stores"):
            run(kernel("st.global.b64 [%d16], %d15;"), np.zeros(1))


SHARED = """mul.lo.s32 %r1, %r15, 4;
\tst.shared.b32 [%r1], %r15;
\t{barrier}
\txor.b32 %r2, %r1, {by};
\tld.shared.b32 %r3, [%r2];
\t{second}
\tst.shared.b32 [%r1], %r3;"""


class TestSharedMemory:
    def race(self, barrier="bar.sync 0;", by=128, second="bar.sync 0;"):
        body = SHARED.format(barrier=barrier, by=by, second=second)
        run(kernel(body, 1, 64), np.zeros(1), shared_bytes=256)

    def test_with_barriers(self):
        self.race()

    def test_within_a_warp_none_is_needed(self):
        self.race("", 4, "")

    def test_read_after_write(self):
        with pytest.raises(
            PtxError, match="a race in shared memory: no barrier between a write and this read"
        ):
            self.race(barrier="")

    def test_write_after_read(self):
        with pytest.raises(
            PtxError, match="a race in shared memory: no barrier between a read and this write"
        ):
            self.race(second="")

    def test_two_writes(self):
        body = "mov.b32 %r1, 0;\n\tmov.b32 %r2, 5;\n\tst.shared.b32 [%r1], %r2;"
        run(kernel(body), np.zeros(1), shared_bytes=4)
        run(kernel(body, 1, 64), np.zeros(1), shared_bytes=4)  # the same number
        with pytest.raises(
            PtxError, match="a race in shared memory: no barrier between a write and this read"
        ):
            run(kernel(f"{body}\n\tld.shared.b32 %r3, [%r1];", 1, 64), np.zeros(1), shared_bytes=4)
        with pytest.raises(PtxError, match="conflicting stores"):
            run(
                kernel("mov.b32 %r1, 0;\n\tst.shared.b32 [%r1], %r15;"), np.zeros(1), shared_bytes=4
            )

    def test_readers_of_several_warps(self):
        body = "mov.b32 %r1, 0;\n\tsetp.eq.u32 %p1, %r15, 0;\n\t@%p1 st.shared.b32 [%r1], %r15;\n\tbar.sync 0;\n\tld.shared.b32 %r2, [%r1];"
        run(kernel(body, 1, 64), np.zeros(1), shared_bytes=4)
        with pytest.raises(PtxError, match="no barrier between a read and this write"):
            run(
                kernel(body + "\n\t@%p1 st.shared.b32 [%r1], %r2;", 1, 64),
                np.zeros(1),
                shared_bytes=4,
            )

    def test_bounds_alignment_and_what_was_never_written(self):
        body = "mul.lo.s32 %r1, %r15, 4;\n\tst.shared.b32 [%r1], %r15;"
        with pytest.raises(PtxError, match="out of bounds of shared memory"):
            run(kernel(body), np.zeros(1), shared_bytes=124)
        with pytest.raises(PtxError, match="misaligned store of shared memory"):
            run(kernel("mov.b32 %r1, 2;\n\tst.shared.b32 [%r1], %r1;"), np.zeros(1), shared_bytes=8)
        with pytest.raises(PtxError, match="shared memory is read before it is written"):
            run(kernel("mov.b32 %r1, 0;\n\tld.shared.b32 %r2, [%r1];"), np.zeros(1), shared_bytes=8)


class TestWarpsAndBarriers:
    HALF = "setp.lt.u32 %p1, %r15, {};\n\t@!%p1 bra $L_end;\n\t{}\n$L_end:\n\tmov.b32 %r9, 0;"

    @pytest.mark.parametrize(
        "op",
        ["shfl.sync.bfly.b32 %r1, %r15, 1, 31, -1;", "vote.sync.ballot.b32 %r1, %p1, -1;",
         "redux.sync.add.s32 %r1, %r15, -1;", "bar.warp.sync -1;"],
    )  # fmt: skip
    def test_partial_warp(self, op):
        run(kernel(self.HALF.format(32, op), 1, 64), np.zeros(1))
        with pytest.raises(PtxError, match="a partial warp: all 32 threads must take part"):
            run(kernel(self.HALF.format(16, op), 1, 64), np.zeros(1))

    def test_partial_mask(self):
        with pytest.raises(PtxError, match="a partial warp: its mask names fewer"):
            run(kernel("shfl.sync.bfly.b32 %r1, %r15, 1, 31, 65535;"), np.zeros(1))

    def test_partial_barrier(self):
        run(kernel(self.HALF.format(64, "bar.sync 0;"), 1, 64), np.zeros(1))
        with pytest.raises(PtxError, match="a partial barrier"):
            run(kernel(self.HALF.format(32, "bar.sync 0;"), 1, 64), np.zeros(1))

    def test_a_barrier_that_other_threads_have_left(self):
        body = "setp.lt.u32 %p1, %r15, 32;\n\t@%p1 ret;\n\tbar.sync 0;"
        with pytest.raises(PtxError, match="a partial barrier"):
            run(kernel(body, 1, 64), np.zeros(1))


class TestRegisters:
    def test_unwritten(self):
        with pytest.raises(PtxError, match="%r7 is read before it is written"):
            run(kernel("add.s32 %r8, %r7, 1;"), np.zeros(1))

    def test_a_part_that_nothing_writes_is_nan(self):
        array = np.zeros(2, np.float32)
        run(kernel("mov.b64 %d1, {%r15, %r7};\n\tst.global.b64 [%d16], %d1;", 1, 1), array)
        np.testing.assert_array_equal(array, [0, np.nan])
        with pytest.raises(PtxError, match="%r7 is read before it is written"):
            run(kernel("mov.b64 %d1, {%r15, %r7};\n\tmov.b32 %r7, 1;"), array)

    def test_written_by_some_threads_only(self):
        body = "setp.lt.u32 %p1, %r15, 9;\n\t@%p1 mov.b32 %r7, 1;\n\t{} add.s32 %r8, %r7, 1;"
        run(kernel(body.format("@%p1")), np.zeros(1))
        with pytest.raises(PtxError, match="%r7 is read before it is written, by some threads"):
            run(kernel(body.format("")), np.zeros(1))
        with pytest.raises(PtxError, match="by some threads"):
            run(kernel(body.format("@!%p1")), np.zeros(1))

    def test_written_by_all_threads_in_turns(self):
        body = "setp.lt.u32 %p1, %r15, 9;\n\t@%p1 mov.b32 %r7, 1;\n\t@!%p1 mov.b32 %r7, 2;\n\tadd.s32 %r8, %r7, 1;"
        run(kernel(body), np.zeros(1))

    def test_the_message_says_where(self):
        text = kernel("add.s32 %r8, %r7, 1;").replace(
            "\tadd.s32", "\t.loc 1 5 9 // kernels.py:5:9\n\tadd.s32"
        )
        with pytest.raises(PtxError, match=r"^kernels.py:5:9: add.s32 %r8, %r7, 1: %r7"):
            run(text, np.zeros(1))


def test_traffic_is_counted_in_sectors():
    array = np.zeros(64)
    emulator = run(kernel(LOAD.format(offset="")), array)
    assert emulator.machine.traffic == {}
    emulator.machine.counts_traffic = True
    emulator.run(1, array.ctypes.data)
    (found,) = emulator.machine.traffic.values()
    misaligned = array.ctypes.data % 32 != 0
    assert (found.requests, found.sectors, found.num_bytes) == (1, 8 + misaligned, 256)
    assert sum(emulator.executed.values()) == 2 * len(emulator.kernel.code)
