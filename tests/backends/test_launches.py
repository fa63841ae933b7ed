"""How many launches a step takes, and when tables are built anew: counted with kernels that do nothing."""

import sys
from types import SimpleNamespace

import pytest
import torch

import nero.backends
from nero import Nero
from nero.backends.triton import launch, trust
from nero_tools.models import MODELS

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
