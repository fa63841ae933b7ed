"""How many launches a step takes, and when tables are built anew: counted with kernels that do nothing."""

import sys
from types import SimpleNamespace

import pytest
import torch

import nero.backends
from nero import Nero
from nero.backends.triton import launch, trust
from nero.core import batches
from nero_tools.models import GPT, MODELS
from tests.operations import WAITS, Operations

# Small ones of the same kinds: convolutions, attention, stacked experts.
NAMES = ("resnet-tiny", "gpt-tiny", "moe-tiny")


@pytest.fixture
def launches(monkeypatch):
    """Let CPU tensors pass for a GPU's, and note every launch: the kernel's name and its programs."""
    seen = []

    def kernel(name):
        def launched(grid):
            return lambda *args, **constants: seen.append((name, grid[0]))

        return type("Kernel", (), {"__getitem__": lambda self, grid: launched(grid)})()

    pytest.importorskip("triton")
    fake = SimpleNamespace(advance_kernel=kernel("advance"), step_kernel=kernel("step"))
    monkeypatch.setitem(sys.modules, "nero.backends.triton.kernels", fake)
    monkeypatch.setitem(nero.backends.KERNELS, "cpu", "triton")
    monkeypatch.setattr(launch, "why_not_device", lambda device: None)
    monkeypatch.setattr(nero.backends.triton, "why_not_device", lambda device: None)
    monkeypatch.setattr(trust, "verdict", lambda variant: None)
    return seen


def set_grads(model):
    for param in model.parameters():
        param.grad = torch.randn_like(param)


def kernel_of(optimizer):
    return optimizer.rule._backends["triton or plain"]


@pytest.mark.parametrize("options", [{}, {"preset": "rows"}, {"constraint": "initial"}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_two_for_a_model(name, options, launches):
    model = MODELS[name]()
    optimizer = Nero(model, **options)
    set_grads(model)
    optimizer.step()
    assert [kernel for kernel, _ in launches] == ["advance", "step"]
    assert launches[1][1] >= sum(1 for _ in model.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_three_for_two_dtypes_in_any_order_of_memory(name, launches):
    model = MODELS[name]()
    for i, param in enumerate(model.parameters()):
        if param.ndim == 4:
            param.data = param.data.to(memory_format=torch.channels_last)
        if i % 2:
            param.data = param.data.bfloat16()
    optimizer = Nero(model)
    set_grads(model)
    optimizer.step()
    assert [kernel for kernel, _ in launches] == ["advance", "step", "step"]


def test_tables_are_built_when_addresses_change_and_only_then(launches):
    model = MODELS["gpt-tiny"]()
    optimizer = Nero(model)
    set_grads(model)
    for rate in (0.01, 0.02, 0.03):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    assert kernel_of(optimizer).num_built == 1
    kept = [param.grad for param in model.parameters()]
    set_grads(model)  # elsewhere, since the old ones are alive
    optimizer.step()
    assert kernel_of(optimizer).num_built == 2
    for param, grad in zip(model.parameters(), kept, strict=True):
        param.grad = grad
    optimizer.step()
    assert kernel_of(optimizer).num_built == 2, "a table is found again"
    assert len(launches) == 10


def test_tables_of_a_captured_graph_live_as_long_as_the_optimizer(launches, monkeypatch):
    model = MODELS["gpt-tiny"]()
    optimizer = Nero(model)
    kernel = kernel_of(optimizer)
    set_grads(model)
    optimizer.step()
    monkeypatch.setattr(launch, "is_capturing", lambda device: True)
    optimizer.step()
    optimizer.step()
    (captured,) = kernel._captured
    monkeypatch.setattr(launch, "is_capturing", lambda device: False)
    kept = []
    for _ in range(launch._MAX_TABLES + 1):
        kept.append([param.grad for param in model.parameters()])
        set_grads(model)
        optimizer.step()
    assert len(kernel._tables) == launch._MAX_TABLES
    assert captured not in kernel._tables.values()
    assert kernel._captured == [captured]


def test_a_polar_step_of_twelve_blocks_takes_a_few_hundred_operations(launches, monkeypatch):
    monkeypatch.setattr(batches, "_UNSTACKED", frozenset())
    model = GPT(width=16, num_layers=12, num_heads=2, vocabulary=64, context=16)
    optimizer = Nero(model, preset="polar")
    set_grads(model)
    optimizer.step()
    launches.clear()
    with Operations() as seen:
        optimizer.step()
    assert seen.counts.total() <= 320, seen.counts
    assert not WAITS & seen.counts.keys()
    assert [kernel for kernel, _ in launches] == ["advance", "step", "step"]


class Reads(Operations):
    """Refuses to read a tensor's value on the host, which on a GPU waits for it."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = super().__torch_dispatch__(function, types, args, kwargs)
        name = function.overloadpacket.__name__
        assert name not in WAITS, f"the step waits for the device in {name}"
        return out


NO_WAITS = {
    "paper": {},
    "rows": {"preset": "rows"},
    "polar": {"preset": "polar"},
    "polar, bfloat16": {"preset": "polar", "momentum_dtype": "bfloat16"},
    "initial": {"constraint": "initial"},
    "propagate": {"nonfinite": "propagate", "gain_penalty": 0.1},
    "tensor lr": {"lr": torch.tensor(0.01, dtype=torch.float64), "preset": "rows"},
}


@pytest.mark.usefixtures("launches")
@pytest.mark.parametrize("options", NO_WAITS.values(), ids=NO_WAITS)
@pytest.mark.parametrize("name", ["gpt-tiny", "resnet-tiny", "moe-tiny"])
def test_no_step_waits_for_the_device(name, options, monkeypatch):
    """So a step can be captured in a CUDA graph, as far as its operations say."""
    monkeypatch.setattr(batches, "_UNSTACKED", frozenset())
    # A tensor on the CPU may be read on the host, one on a GPU may not.
    monkeypatch.setattr("nero.core.spec.learning_rate", lambda name, lr: lr)
    model = MODELS[name]()
    optimizer = Nero(model, **options)
    for _ in range(2):  # the first step may judge the weights
        set_grads(model)
        optimizer.step()
    with Reads():
        optimizer.step()


@pytest.mark.parametrize("num_bad", [0, 1, 5])
@pytest.mark.usefixtures("launches")
def test_nonfinite_raise_waits_once(num_bad):
    model = MODELS["gpt-tiny"]()
    optimizer = Nero(model, nonfinite="raise")
    for _ in range(2):
        set_grads(model)
        optimizer.step()
    groups = optimizer.param_groups
    params = [pair for g in groups for pair in zip(g["param_names"], g["params"], strict=True)]
    names = [name for name, _ in params]
    for _, param in params[3 : 3 + num_bad]:
        param.grad.view(-1)[-1] = torch.nan
    with Operations() as seen:
        if num_bad:
            with pytest.raises(FloatingPointError, match=f"`{names[3]}`"):
                optimizer.step()
        else:
            optimizer.step()
    # A second look at elements, whose results come in one transfer, only if the first finds something.
    assert sum(seen.counts[name] for name in WAITS) == 1
