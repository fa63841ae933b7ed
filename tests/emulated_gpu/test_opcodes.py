"""Every instruction that the emulator implements, against numpy."""

# ruff: noqa: E501 (assembly)

import numpy as np
import pytest

from tests.emulated_gpu.approximate import _RELATIVE, _ULPS, EXACT
from tests.emulated_gpu.arithmetic import COMPUTE
from tests.emulated_gpu.opcode_cases import CASES, floats
from tests.emulated_gpu.ptx import PtxError, read_instruction
from tests.emulated_gpu.ptx_types import CANONICAL_NAN
from tests.emulated_gpu.snippets import execute, kernel, run

TESTED = {read_instruction(case.text).name for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.text.split()[0])
def test_arithmetic(case):
    found = execute(case.text, case.dtype, *case.operands)
    with np.errstate(all="ignore"):
        expected = np.asarray(case.expected(*case.operands), case.dtype)
    if case.text.split()[0].endswith("f32x2"):
        found, expected = found.view(np.float32), expected.view(np.float32)
    if found.dtype.kind == "f":
        is_nan = np.isnan(expected)
        assert (np.isnan(found) == is_nan).all()
        if found.dtype != np.float16 and not case.text.startswith("selp"):
            bits = CANONICAL_NAN[found.dtype].view(f"u{found.itemsize}")
            assert (found.view(bits.dtype)[is_nan] == bits).all(), "threads must agree on NaN"
        found, expected = (each.view(f"u{each.itemsize}")[~is_nan] for each in (found, expected))
        zero = expected == 0  # the sign of zero too, except where numpy's min and max ignore it
        if case.text[:3] in ("min", "max"):
            found, expected = found[~zero & (found << 1 != 0)], expected[~zero & (found << 1 != 0)]
    np.testing.assert_array_equal(found, expected)


def test_all_arithmetic_is_tested():
    assert {name.split(".")[0] for name in TESTED} == {*COMPUTE}


@pytest.mark.parametrize("op", ["min", "max"])
def test_zeros_have_an_order(op):
    pair = np.array([-0.0, 0.0], np.float32), np.array([0.0, -0.0], np.float32)
    found = execute(f"{op}.f32 {{0}}, {{1}}, {{2}}", np.float32, *pair)
    assert np.signbit(found).tolist() == [op == "min"] * 2


@pytest.mark.parametrize("error", [-1.0, 1.0, None])
@pytest.mark.parametrize(
    "case", [c for c in CASES if "approx" in c.text or "full" in c.text], ids=lambda c: c.text
)
def test_approximate_instructions_err_as_much_as_is_documented(case, error):
    operands = [x[-200:] for x in case.operands]
    found = execute(case.text, np.float32, *operands, error=error)
    ins = read_instruction(case.text)
    with np.errstate(all="ignore"):
        exact = EXACT[ins.op](*(x.astype(np.float64) for x in operands))
    usual = np.isfinite(found) & (np.abs(found) > 1e-30) & (np.abs(found) < 1e30)
    assert usual.sum() > 50
    gaps = np.abs(found[usual] - exact[usual])
    name = f"{ins.op}.{'approx' if 'approx' in ins.mods else 'full'}"
    if name in _RELATIVE:
        parts = gaps / np.abs(exact[usual]) / _RELATIVE[name]
    else:
        ulp = np.spacing(np.abs(exact[usual]).astype(np.float32)).astype(np.float64)
        parts = gaps / (_ULPS[name] * ulp)
    assert parts.max() <= 1
    assert parts.max() > 0.9, "the limit is reached"
    assert np.median(parts) > 0.3, "most results err"


class TestUnknown:
    @pytest.mark.parametrize(
        "instruction",
        [
            "sin.approx.f32 {0}, {1}", "add.rz.f32 {0}, {1}, {2}", "add.sat.s32 {0}, {1}, {2}",
            "fma.rn.bf16x2 {0}, {1}, {2}, {3}", "mul.hi.s64 {0}, {1}, {2}", "setp.foo.s32 {0}, {1}, {2}",
            "cvt.sat.f32.f32 {0}, {1}", "cvt.rz.f16.f32 {0}, {1}", "mul24.lo.s32 {0}, {1}, {2}",
            "shfl.sync.bfly.b32 {0}|{1}, {2}, 1, 31, -1", "ld.local.b32 {0}, [{1}]", "atom.global.cas.b32 {0}, [{1}], 1, 2",
            "bar.sync 0, 32", "add.f32x4 {0}, {1}, {2}", "mma.sync.aligned.m16n8k8.f32 {0}, {1}", "red.shared.add.u32 [{0}], 1",
        ],
    )  # fmt: skip
    def test_is_named(self, instruction):
        text = instruction.format("%r1", "%r2", "%r3", "%r4")
        with pytest.raises(PtxError, match=rf"not implemented: {text.split()[0]}"):
            run(kernel(text + ";"), np.zeros(32))

    def test_register_and_label(self):
        with pytest.raises(PtxError, match="%zz9 is not declared"):
            run(kernel("mov.b32 %r1, %zz9;"), np.zeros(32))
        with pytest.raises(KeyError, match="nowhere"):
            run(kernel("bra $nowhere;"), np.zeros(32))


def threads(num=32):
    return np.arange(num, dtype=np.uint64)


def stored(body, num_threads=32, grid=1, shared_bytes=0, num=None):
    """Return what each thread stores of %d1, after a body that has its number in %r15."""
    out = np.zeros((num or num_threads) * grid, np.uint64)
    lines = (
        "mov.u32 %r11, %ctaid.x;\n\tmov.u32 %r12, %ntid.x;\n\tmad.lo.s32 %r13, %r11, %r12, %r15;\n"
    )
    store = (
        "\n\tmul.wide.u32 %d14, %r13, 8;\n\tadd.s64 %d14, %d16, %d14;\n\tst.global.b64 [%d14], %d1;"
    )
    run(kernel(lines + body + store, 1, num_threads), out, grid=grid, shared_bytes=shared_bytes)
    return out


class TestMoves:
    def test_special_registers(self):
        body = "mov.u32 %r1, %tid.x;\n\tmov.u32 %r2, %ctaid.x;\n\tmov.b64 %d1, {%r1, %r2};"
        found = stored(body, 64, 3)
        assert (
            found == np.tile(threads(64), 3) + (np.repeat(threads(3), 64) << np.uint64(32))
        ).all()
        body = "mov.u32 %r1, %laneid;\n\tmov.u32 %r2, %nctaid.x;\n\tmov.b64 %d1, {%r1, %r2};"
        assert (stored(body, 64, 3) == np.tile(threads(), 6) + np.uint64(3 << 32)).all()

    def test_parts(self):
        body = "mov.b64 %d2, 0x0123456789abcdef;\n\tmov.b64 {%r1, %r2}, %d2;\n\tmov.b64 %d1, {%r2, %r1};"
        assert (stored(body) == 0x89ABCDEF01234567).all()
        body = "mov.b32 %r1, 0x1234abcd;\n\tmov.b32 {%h1, %h2}, %r1;\n\tmov.b32 %r2, {%h2, %h1};\n\tcvt.u64.u32 %d1, %r2;"
        assert (stored(body) == 0xABCD1234).all()

    @pytest.mark.parametrize(
        ("name", "value"), [("0f3F800000", 0x3F800000), ("-1", 0xFFFFFFFF), ("0x10", 16)]
    )
    def test_constants(self, name, value):
        assert (stored(f"mov.b32 %r1, {name};\n\tcvt.u64.u32 %d1, %r1;") == value).all()
        assert (stored("mov.b64 %d1, 0d3FF0000000000000;") == 0x3FF0000000000000).all()
        assert (stored("cvta.to.global.u64 %d1, %d16;") != 0).all()

    def test_predicates_guard(self):
        body = "setp.lt.u32 %p1, %r15, 5;\n\tmov.b64 %d1, 1;\n\t@%p1 mov.b64 %d1, 2;\n\tmov.pred %p2, %p1;\n\t@!%p2 mov.b64 %d1, 3;"
        assert stored(body).tolist() == [2] * 5 + [3] * 27


class TestLoadsAndStores:
    @pytest.mark.parametrize(
        ("type_", "view"),
        [("s8", "i1"), ("u8", "u1"), ("b16", "u2"), ("s16", "i2"), ("s32", "i4"), ("b32", "u4")],
    )
    def test_narrow_loads_extend(self, type_, view):
        numbers = np.random.default_rng(0).integers(0, 2**63, 32, np.uint64)
        out = np.zeros(32, np.uint64)
        register, to = ("%h1", "u16") if type_[1:] in ("8", "16") else ("%r1", "u32")
        to = to.replace("u", "s") if type_[0] == "s" else to
        wide = "s64" if type_[0] == "s" else "u64"
        body = f"add.s64 %d14, %d17, %d15;\n\tld.global.{type_} {register}, [%d14+0];\n\tcvt.{wide}.{to} %d1, {register};"
        body += "\n\tadd.s64 %d14, %d16, %d15;\n\tst.global.b64 [%d14], %d1;"
        run(kernel(body, 2), out, numbers)
        step = 8 // np.dtype(view).itemsize
        expected = numbers.view(view)[::step].astype("i8" if type_[0] == "s" else "u8")
        assert (out == expected.view(np.uint64)).all()

    @pytest.mark.parametrize(
        ("vector", "bits", "registers"),
        [("v2", 32, "{%r1, %r2}"), ("v4", 16, "{%h1, %h2, %h3, %h4}"), ("v2", 16, "{%h1, %h2}")],
    )
    def test_vectors(self, vector, bits, registers):
        numbers = np.random.default_rng(0).integers(0, 2**63, 32, np.uint64)
        out = np.zeros(32, np.uint64)
        body = "add.s64 %d13, %d17, %d15;\n\tadd.s64 %d14, %d16, %d15;"
        body += f"\n\tld.global.{vector}.b{bits} {registers}, [%d13];\n\tst.global.{vector}.b{bits} [%d14], {registers};"
        run(kernel(body, 2), out, numbers)
        used = (1 << (int(vector[1]) * bits)) - 1
        assert (out == (numbers & np.uint64(used))).all()

    def test_parameters(self):
        assert (stored("ld.param.b32 %r1, [param_0];\n\tcvt.u64.u32 %d1, %r1;") != 0).all()

    def test_shared(self):
        body = "mul.lo.s32 %r1, %r15, 8;\n\tmov.b32 %r3, global_smem;\n\tadd.s32 %r1, %r1, %r3;\n\tcvt.u64.u32 %d2, %r15;"
        body += "\n\tst.shared.b64 [%r1], %d2;\n\tbar.sync 0;\n\txor.b32 %r2, %r1, 504;\n\tld.shared.b64 %d1, [%r2];"
        assert stored(body, 64, 2, 512).tolist() == [*range(63, -1, -1)] * 2

    @pytest.mark.parametrize("op", ["atom", "red"])
    def test_atomics(self, op):
        total = np.zeros(1, np.uint64)
        to = "%d2, " if op == "atom" else ""
        run(
            kernel(f"cvt.u64.u32 %d1, %r15;\n\t{op}.global.gpu.relaxed.add.u64 {to}[%d16], %d1;"),
            total,
            grid=4,
        )
        assert total[0] == 4 * sum(range(32))
        out = stored(
            "mov.b64 %d3, 1;\n\tsub.s64 %d3, %d3, 1;\n\tatom.global.gpu.acq_rel.add.u64 %d1, [%d16], %d3;"
        )
        assert (out == 0).all()


class TestWarps:
    @pytest.mark.parametrize(
        ("mode", "by", "clamp", "expected"),
        [
            ("bfly", 5, 31, lambda lane: lane ^ 5),
            ("idx", 7, 31, lambda lane: 0 * lane + 7),
            ("down", 3, 31, lambda lane: np.where(lane + 3 < 32, lane + 3, lane)),
            ("up", 3, 0, lambda lane: np.where(lane >= 3, lane - 3, lane)),
        ],
    )
    def test_shuffles(self, mode, by, clamp, expected):
        body = f"shfl.sync.{mode}.b32 %r1, %r15, {by}, {clamp}, -1;\n\tcvt.u64.u32 %d1, %r1;"
        lanes = expected(np.arange(32))
        assert stored(body, 64).tolist() == [*lanes, *(lanes + 32)]

    def test_ballot(self):
        body = "setp.lt.u32 %p1, %r15, 35;\n\tvote.sync.ballot.b32 %r1, %p1, -1;\n\tcvt.u64.u32 %d1, %r1;"
        assert stored(body, 64).tolist() == [2**32 - 1] * 32 + [7] * 32

    @pytest.mark.parametrize(
        ("how", "type_", "expected"),
        [
            ("add", "s32", 496),
            ("max", "s32", 31),
            ("min", "u32", 0),
            ("and", "b32", 0),
            ("or", "b32", 31),
        ],
    )
    def test_reductions(self, how, type_, expected):
        body = f"redux.sync.{how}.{type_} %r1, %r15, -1;\n\tcvt.u64.u32 %d1, %r1;"
        assert (stored(body) == expected).all()

    def test_barriers_of_a_warp(self):
        assert (stored("bar.warp.sync -1;\n\tmov.b64 %d1, 1;") == 1).all()


class TestJumps:
    def test_threads_part_and_meet(self):
        body = "mov.b64 %d1, 10;\n\tsetp.lt.u32 %p1, %r15, 5;\n\t@%p1 bra $L_less;\n\tmov.b64 %d1, 20;\n\tbra.uni $L_end;"
        body += "\n$L_less:\n\tmov.b64 %d1, 30;\n$L_end:\n\tadd.s64 %d1, %d1, 1;"
        assert stored(body).tolist() == [31] * 5 + [21] * 27

    def test_loops_of_different_length(self):
        body = "mov.b64 %d1, 0;\n\tmov.b32 %r1, 0;\n$L_loop:\n\tadd.s64 %d1, %d1, 2;\n\tadd.s32 %r1, %r1, 1;"
        body += "\n\tsetp.lt.u32 %p1, %r1, %r15;\n\t@%p1 bra $L_loop;"
        assert stored(body, 64).tolist() == [2 * max(i, 1) for i in range(64)]

    def test_programs_part(self):
        body = "mov.b64 %d1, 1;\n\tsetp.eq.u32 %p1, %r11, 1;\n\t@%p1 bra $L_end;\n\tmov.b64 %d1, 2;\n$L_end:\n\tadd.s64 %d1, %d1, 0;"
        assert stored(body, 32, 3).tolist() == [2] * 32 + [1] * 32 + [2] * 32

    def test_tables(self):
        body = "rem.u32 %r1, %r15, 3;\n\tbrx.idx %r1, $L_t;\n$L_a:\n\tmov.b64 %d1, 1;\n\tbra.uni $L_end;\n$L_b:\n\tmov.b64 %d1, 2;"
        body += "\n\tbra.uni $L_end;\n$L_c:\n\tmov.b64 %d1, 3;\n$L_end:\n\tadd.s64 %d1, %d1, 0;"
        body = "$L_t: .branchtargets $L_a, $L_b, $L_c;\n" + body
        assert stored(body).tolist() == [i % 3 + 1 for i in range(32)]
        with pytest.raises(PtxError, match="a jump past its table"):
            stored(body.replace("rem.u32 %r1, %r15, 3;", "rem.u32 %r1, %r15, 4;"))

    def test_ret_ends_a_thread(self):
        out = np.zeros(32, np.uint64)
        body = "add.s64 %d14, %d16, %d15;\n\tsetp.gt.u32 %p1, %r15, 9;\n\t@%p1 ret;\n\tmov.b64 %d1, 1;\n\tst.global.b64 [%d14], %d1;"
        run(kernel(body), out)
        assert out.tolist() == [1] * 10 + [0] * 22


def test_numbers_of_every_size_are_tried():
    assert {np.inf, -np.inf, 0.0} <= {*floats(1)[0].tolist()}
