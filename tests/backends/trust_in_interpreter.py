"""The self-test, and what follows from it, in Triton's interpreter: a right kernel, and broken ones.

`test_triton.py` runs this file in a process of its own; by hand, set ``TRITON_INTERPRET=1``.
"""

import importlib.util
import json
import sys
import time
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.two_tensor import TwoTensor

import nero.backends
from backends.quick_interpreter import quick_interpreter
from nero import Nero
from nero.backends import backend_name
from nero.backends.triton import kernels, launch, selftest, trust
from nero.backends.triton.launch import TritonBackend, Variant
from nero.core.precision import working_dtype
from tests.distributed.ranks import on_ranks, sharded_grad

# The interpreter computes with numpy, which remarks on every NaN and inf.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
FLOAT32 = Variant(torch.device("cpu"), torch.float32, stochastic=False)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty cache, nothing tested yet, and CPU tensors in the place of a GPU's."""
    monkeypatch.setenv("NERO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(nero.backends.KERNELS, "cpu", "triton")
    torch.set_num_threads(1)
    trust.forget()
    with quick_interpreter():
        yield tmp_path / "cache"
    trust.forget()


def trained(num_steps=1, dtype=torch.float32, **options):
    """Return the weights of a small network after some steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5)).to(dtype)
    optimizer = Nero(model, **options)
    for _ in range(num_steps):
        for param in model.parameters():
            param.grad = torch.randn_like(param)
        optimizer.step()
    return [param.detach() for param in model.parameters()]


def same(ours, theirs):
    return all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))


@pytest.fixture
def launched(monkeypatch):
    """Count the launches of kernels by steps, not by self-tests."""
    count, run = [], launch._run

    def counted(table, *phase):
        count.append(table)
        run(table, *phase)

    def silent(variant):
        num = len(count)
        found = selftest.self_test(variant)
        del count[num:]
        return found

    monkeypatch.setattr(launch, "_run", counted)
    monkeypatch.setattr(trust, "self_test", silent)
    return count


@cache
def good():
    """The verdict on the kernel as it is, for tests of what becomes of a verdict: it takes a second."""
    return selftest.self_test(FLOAT32)


@pytest.fixture
def tested(monkeypatch):
    """The variants that were tested, with `good` as the verdict."""
    tested = []
    monkeypatch.setattr(trust, "self_test", lambda variant: (tested.append(variant), good())[1])
    return tested


ALL_VARIANTS = [
    Variant(torch.device("cpu"), dtype, stochastic, momentum)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    for stochastic in ((False, True) if dtype.itemsize == 2 else (False,))
    for momentum in (None, working_dtype(dtype), torch.bfloat16)
]
# Every dtype, each with rounding and without, each kind of momentum with half and with full precision.
VARIANTS = [
    FLOAT32,
    FLOAT32._replace(momentum=torch.bfloat16),
    Variant(torch.device("cpu"), torch.bfloat16, stochastic=True, momentum=torch.float32),
    Variant(torch.device("cpu"), torch.bfloat16, stochastic=False),
    Variant(torch.device("cpu"), torch.float16, stochastic=True, momentum=torch.bfloat16),
    Variant(torch.device("cpu"), torch.float16, stochastic=False, momentum=torch.float32),
    Variant(torch.device("cpu"), torch.float64, stochastic=False, momentum=torch.float64),
]
# The halves of a step, which are the same lines for every dtype: the plainest, and the most involved.
VARIANTS += [
    FLOAT32._replace(shared=True),
    Variant(
        torch.device("cpu"), torch.bfloat16, stochastic=True, momentum=torch.bfloat16, shared=True
    ),
    Variant(torch.device("cpu"), torch.float64, stochastic=False, shared=True),
]


VARIANTS += [
    pytest.param(variant, marks=pytest.mark.slow)
    for variant in ALL_VARIANTS
    if variant not in VARIANTS
]


@pytest.mark.parametrize(
    "variant", VARIANTS, ids=lambda v: f"{v.dtype}, {v.stochastic}, {v.momentum}, {v.shared}"
)
def test_the_kernel_passes(variant):
    found = selftest.self_test(variant)
    assert found.passed, [str(difference) for difference in found.differences] or found.error
    assert found.num_cases > (14 if variant.shared else 20)


def test_is_quick():
    """The interpreter takes 5 s for one dtype; on a shared core it may take twice as long.

    By the processor's clock, since that does not count the time of others. A device takes under a second
    by the instructions that `tests/emulated_gpu/test_variants.py` counts.
    """

    def seconds() -> float:
        start = time.process_time()
        selftest.self_test(FLOAT32)
        return time.process_time() - start

    assert any(seconds() < 10.0 for _ in range(3))


class TestTrusted:
    def test_a_step_takes_the_kernel_and_keeps_the_verdict(self, folder, launched, monkeypatch):
        ours = trained()
        assert len(launched) == 1
        assert [p.dtype for p in ours] == [torch.float32] * 4
        (path,) = folder.iterdir()
        kept = json.loads(path.read_text())
        assert kept["found"]["passed"]
        assert kept["of"]["device"] == "Triton's interpreter"

        trust.forget()  # as in another process
        monkeypatch.setattr(trust, "self_test", lambda variant: pytest.fail("tested again"))
        assert same(trained(), ours)
        assert len(launched) == 2

    def test_another_version_is_tested_again(self, folder, tested, monkeypatch):
        trained()
        trust.forget()
        monkeypatch.setattr(torch, "__version__", "9.9")
        trained()
        assert len([*folder.iterdir()]) == len(tested) == 2

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda kept: "",
            lambda kept: "{",
            lambda kept: "[]",
            lambda kept: '"passed"',
            lambda kept: json.dumps({}),
            lambda kept: json.dumps({**kept, "found": {"passed": False}}),
            lambda kept: json.dumps({**kept, "found": None}),
            lambda kept: json.dumps({"found": kept["found"]}),
            *(
                lambda kept, key=key: json.dumps({**kept, "of": {**kept["of"], key: "another"}})
                for key in ("sources", "device", "driver", "torch", "triton", "dtype", "momentum")
            ),
        ],
    )
    def test_a_file_that_does_not_say_so_is_no_verdict(self, spoil, folder, tested):
        assert trust.verdict(FLOAT32).passed
        (path,) = folder.iterdir()
        kept = path.read_text()
        path.write_text(spoil(json.loads(kept)))
        trust.forget()
        assert trust.verdict(FLOAT32) is not None, "it was believed"
        assert len(tested) == 2
        assert path.read_text() == kept, "a good one takes its place"
        trust.forget()
        assert trust.verdict(FLOAT32) is None

    def test_bytes_that_are_no_text_are_no_verdict(self, folder):
        path = trust._path(FLOAT32)
        path.parent.mkdir()
        path.write_bytes(b"\xff\xfe")
        assert not trust._has_passed(path, FLOAT32)
        path.unlink()
        path.mkdir()
        assert not trust._has_passed(path, FLOAT32)

    def test_another_driver_is_tested_again(self, folder, tested, monkeypatch, tmp_path):
        trained()
        trust.forget()
        (tmp_path / "version").write_text("NVRM version: 999.1\n")
        monkeypatch.setattr(trust, "_DRIVERS", ("/nowhere", str(tmp_path / "version")))
        trained()
        kept = [json.loads(path.read_text())["of"]["driver"] for path in folder.iterdir()]
        assert len(kept) == len(tested) == 2
        assert "NVRM version: 999.1" in kept

    @pytest.mark.slow
    def test_once_for_each_dtype(self, folder, launched):
        trained(2)
        trained(2, dtype=torch.bfloat16)
        assert len([*folder.iterdir()]) == 2
        assert len(launched) == 4

    def test_a_folder_that_cannot_be_written_to_is_no_error(self, tmp_path, monkeypatch, launched):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("NERO_CACHE", str(tmp_path / "file" / "below"))
        trained()
        assert len(launched) == 1

    def test_fused_false_is_plain(self, folder, launched):
        trained(fused=False)
        assert not launched
        assert not folder.exists()

    def test_not_while_a_graph_is_captured(self, monkeypatch):
        monkeypatch.setattr(trust, "is_capturing", lambda device: True)
        with pytest.raises(RuntimeError, match="step once before the capture"):
            trained()


def broken_kernels(old, new):
    """Return the kernels' module with an edit."""
    text = Path(kernels.__file__).read_text()
    assert text.count(old) >= 1, old
    return text.replace(old, new)


# What is edited in the kernels, and the case that the warning names first.
BROKEN = {
    "wrong sign": ("q = -rate / tl", "q = rate / tl", "a usual element"),
    "missing mean": ("(sw - k * sg) * inverse_fan_in, 0.0)", "sw * inverse_fan_in, 0.0)", "a usual row"),
    "wrong norm": ("ww - 2 * kwg + kkgg", "ww - kwg + kkgg", "a usual row"),
    "no skip": ("is_finite = is_finite & _is_finite(average)", "is_finite = mask", "a gradient with NaN"),
    "zero gradients move": ("moves = (gg != 0)", "moves = (gg == gg)", "a gradient of zero"),
    "wrong stride of columns": ("offset = fan * fan_stride", "offset = fan * (fan_stride - 1)", "columns"),
    "missing bias rule": ("tl.load(_address(row, SCALE, WORK)).to(tl.float64)", "1", "a usual element"),
    "lost maximize": ("1 - 2 * tl.load(row + MAXIMIZE)", "1 - 0 * tl.load(row + MAXIMIZE)", "maximize"),
    "ignored penalty": ("penalty * (w - 1)", "penalty * w", "a gain penalty"),
    "steps at a rate of zero": ("mask & (lr != 0))", "mask)", "a learning rate of zero"),
    "no propagation": ("== PROPAGATE, mask, is_finite)", "== PROPAGATE, is_finite, is_finite)", "NaN that"),
    "ignored radius": ("if tl.load(row + RADIUS) != 0:", "if tl.load(row + RADIUS) == 1:", "initial norms"),
    "second block forgotten": ("ww + ww_more, size +", "ww, size +", "rows of several"),
    "float32 alone": ("if EXACT and SUM != tl.float64:", "if False:", "a huge gradient"),
    "does not compile": ("tl.program_id(0)", "tl.no_such_name(0)", "no_such_name"),
}  # fmt: skip


@pytest.fixture
def break_kernels(monkeypatch, tmp_path):
    def break_(text):
        path = tmp_path / "broken_kernels.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("broken_kernels", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "broken_kernels", module)
        spec.loader.exec_module(module)
        monkeypatch.setitem(sys.modules, "nero.backends.triton.kernels", module)

    return break_


def assert_falls_back(told, **options):
    """One warning that names the rule, and the steps of the plain backend."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = trained(2, **options)
    mine = [str(w.message) for w in caught if "self-test" in str(w.message)]
    assert len(mine) == 1, mine
    assert told in mine[0]
    assert "nero doctor" in mine[0]
    assert same(ours, trained(2, **{**options, "fused": False}))
    with pytest.raises(
        RuntimeError, match="fused=True, but the Triton kernel failed its self-test"
    ):
        trained(1, **options, fused=True)


@pytest.mark.parametrize("other_fails", [False, True])
def test_long_rows_fall_back_one_launch_at_a_time(monkeypatch, other_fails):
    """A launch that keeps rows fails, and perhaps also the one that reads them twice."""

    def fails(variant):
        bad = variant.kept or other_fails
        return replace(good(), kept=variant.kept, error="out of registers" if bad else None)

    def step(**options):
        torch.manual_seed(0)
        linear = nn.Linear(1600, 2, bias=False)
        optimizer = Nero(linear, **options)
        linear.weight.grad = torch.randn_like(linear.weight)
        optimizer.step()
        return linear.weight.detach()

    ran, run = [], launch._run
    good()  # before launches are counted
    monkeypatch.setattr(
        launch, "_run", lambda table, *phase: (ran.append(table), run(table, *phase))
    )
    monkeypatch.setattr(trust, "self_test", fails)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = step()
    told = [str(w.message) for w in caught if "self-test" in str(w.message)]
    assert told[0].startswith("Nero reads rows of up to 2,048 weights twice, because the launch")
    assert [text.partition(",")[0] for text in told[1:]] == (
        ["Nero fell back to plain torch operations"] if other_fails else []
    )
    assert [variant.kept for table in ran for variant in table.tiles] == (
        [] if other_fails else [0]
    )
    torch.testing.assert_close(ours, step(fused=False), rtol=1e-6, atol=1e-7)
    with pytest.raises(RuntimeError, match=r"rows of up to 2048 on .*: the kernel does not run"):
        step(fused=True)


class TestBroken:
    @pytest.mark.parametrize("name", BROKEN)
    def test_kernel_falls_back_and_says_what_differs(self, name, break_kernels, folder):
        old, new, told = BROKEN[name]
        break_kernels(broken_kernels(old, new))
        assert_falls_back(told)
        assert not folder.exists()

    def test_a_failure_is_not_kept(self, break_kernels, folder):
        old, new, told = BROKEN["wrong sign"]
        break_kernels(broken_kernels(old, new))
        for _ in range(2):
            with pytest.warns(UserWarning, match=told):
                trained()
            assert not folder.exists()
            trust.forget()  # as in another process

    def test_momentum_ignored(self, break_kernels):
        break_kernels(broken_kernels("(mu * mu).to(g.dtype) * m", "0 * m"))
        assert selftest.self_test(FLOAT32).passed
        assert_falls_back("float32, momentum on", momentum=0.9)

    def test_momentum_rounded_by_the_noise_of_weights(self, break_kernels):
        break_kernels(broken_kernels("_noise(seed, offset, 1)", "_noise(seed, offset, 0)"))
        assert selftest.self_test(FLOAT32).passed
        options = {"momentum": 0.9, "momentum_dtype": "bfloat16"}
        assert_falls_back("float32, bfloat16 momentum on", **options)

    def test_wrong_rounding(self, break_kernels):
        break_kernels(broken_kernels("noise < scaled - below", "0.5 < scaled - below"))
        options = {"dtype": torch.bfloat16, "stochastic_rounding": True}
        assert_falls_back("bfloat16, stochastic rounding on", **options)

    def test_stale_table(self, monkeypatch):
        table = TritonBackend._table

        def stale(self, key):
            shapes = [(variant, len(entries)) for variant, entries in key]
            for kept in self._tables:
                if [(variant, len(entries)) for variant, entries in kept] == shapes:
                    return self._tables[kept]
            return table(self, key)

        monkeypatch.setattr(TritonBackend, "_table", stale)
        assert_falls_back("a gradient that moves")

    def test_stale_rate(self, monkeypatch):
        set_lr = launch.Table.set_lr

        def once(self, lrs):
            if self._lr_values is None:
                set_lr(self, lrs)

        monkeypatch.setattr(launch.Table, "set_lr", once)
        assert_falls_back("a learning rate that changes")

    def test_wrong_stride_of_rows(self, monkeypatch):
        entry = launch.table_entry

        def shifted(update):
            made = entry(update)
            integers = list(made.integers)
            integers[launch.INTEGERS.index("inner_stride")] = 0
            return made._replace(integers=tuple(integers))

        monkeypatch.setattr(launch, "table_entry", shifted)
        assert_falls_back("row")


# The same for the halves of a step.
BROKEN_HALVES = {
    "sums in another order": ("sums + 2 * total, wg", "sums + 2 * total, gg", "a usual row"),
    "a sum of the first block": ("ww + ww_more, size +", "ww, size +", "rows of several"),
    "a lost mean": ("tl.load(turns + 2 * total, mask, 0.0)", "tl.load(turns, mask, 0.0)", "a usual row"),
    "moves what is skipped": ("_address(row, MOVES, tl.int8)", "_address(row, WRITTEN, tl.int8)", "zero"),
}  # fmt: skip


class TestHalves:
    """What neurons that ranks share go through."""

    @pytest.mark.parametrize("name", BROKEN_HALVES)
    def test_a_broken_one_is_caught(self, name, break_kernels):
        old, new, told = BROKEN_HALVES[name]
        break_kernels(broken_kernels(old, new))
        found = selftest.self_test(FLOAT32._replace(shared=True))
        assert not found.passed
        assert "sharded fan-in" in str(found)
        assert any(told in str(difference) for difference in found.differences), str(found)

    @pytest.mark.parametrize("momentum", [pytest.param(0.0, marks=pytest.mark.slow), 0.9])
    def test_on_two_ranks(self, momentum):
        on_ranks(2, _train_shared, momentum)


def _train_shared(momentum):
    nero.backends.KERNELS["cpu"] = "triton"
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    weight, grads = torch.randn(5, 40), torch.randn(3, 5, 40)
    grads[1, 2], grads[2, 3, 0] = 0, torch.nan
    options = {"momentum": momentum, "nonfinite": "skip"}
    whole = nn.Parameter(weight.clone())
    cut = nn.Parameter(distribute_tensor(weight, mesh, [Shard(1)]))
    reference, ours = Nero([whole], fused=False, **options), Nero([cut], fused=True, **options)
    with quick_interpreter():
        for grad in grads:
            whole.grad, cut.grad = grad, sharded_grad(grad, cut)
            reference.step()
            ours.step()
    torch.testing.assert_close(cut.full_tensor(), whole.detach(), rtol=2e-6, atol=2e-6)
    assert ours.num_skipped == reference.num_skipped == 1
    # Both halves read one table, and a new rate does not make another.
    assert ours.rule._summing_backends["triton"].num_built <= len(grads)


class TestCompiled:
    """`torch.compile` keeps the kernel in its graph, as one operator, which tests it first."""

    def steps(self, **options):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5))
        optimizer = Nero(model, **options)
        torch.compiler.reset()
        step = torch.compile(optimizer.step, fullgraph=True, backend="aot_eager")
        for _ in range(3):
            for param in model.parameters():
                param.grad = torch.randn_like(param)
            step()
        return [param.detach() for param in model.parameters()]

    @pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"lr": torch.tensor(0.02)}])
    def test_it_takes_the_kernel(self, options, launched):
        ours = self.steps(fused=True, **options)
        assert len(launched) == 3
        assert same(ours, trained(3, fused=True, **options))

    def test_a_tensor_of_which_the_memory_is_unknown_is_not_taken(self, monkeypatch):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        own = TwoTensor(torch.zeros(3), torch.zeros(3))
        assert backend_name(own, fused=None) == "plain"
        assert backend_name(own.a, fused=None) == "triton or plain"

    def test_a_broken_one_is_not_taken(self, break_kernels, launched):
        break_kernels(broken_kernels(*BROKEN["wrong sign"][:2]))
        with pytest.warns(UserWarning, match="its Triton kernel failed the self-test"):
            ours = self.steps()
        assert not launched
        assert same(ours, trained(3, fused=False))


def test_the_result_is_plain_data():
    packed = json.loads(json.dumps(good().as_dict()))
    assert packed["passed"] is True
    assert packed["differences"] == []
