"""Devices without float64, such as Apple's: everything works, and no tensor there is ever float64.

CPU tensors stand for the device. What the library computes on CPU copies, to judge whether weights are
trained, is left out: it does so for any device.
"""

import io
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

import nero
from nero import Balanced, Nero
from nero.baselines import Fromage, Lamb, Lars, Madam
from nero.checks import trained
from nero.core import precision
from nero.diagnostics import TurningMonitor, balance_, check_balance, turning_angle
from tests.distributed.ranks import OPTIONS, gradients, network, on_ranks, train


class NoFloat64(TorchDispatchMode):
    """Refuses operations that take or return a float64 tensor."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs or {}, out)):
            if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64:
                raise TypeError(f"{function} has a float64 tensor, which this device cannot have")
        return out


def pretend():
    """Declare that CPUs have no float64."""
    precision._NO_FLOAT64 = frozenset({"cpu"})
    judge = trained._projected

    def on_the_real_cpu(layer):
        with _disable_current_modes():
            return judge(layer)

    trained._projected = on_the_real_cpu


@pytest.fixture(autouse=True)
def no_float64(monkeypatch):
    monkeypatch.setattr(precision, "_NO_FLOAT64", precision._NO_FLOAT64)
    monkeypatch.setattr(trained, "_projected", trained._projected)
    pretend()
    with NoFloat64():
        yield


def model():
    torch.manual_seed(0)
    layers = nn.Embedding(11, 16), nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)
    return nn.Sequential(*layers, nn.Linear(16, 16), nn.Linear(16, 11))


def step(net, optimizer, num_steps=3):
    for _ in range(num_steps):
        optimizer.zero_grad()
        net(torch.arange(5)).square().mean().backward()
        optimizer.step()


def test_the_mode_refuses_float64():
    with pytest.raises(TypeError, match="float64"):
        torch.zeros(3).double()


NEROS = [
    {},
    {"preset": "rows"},
    {"preset": "polar"},
    {"constraint": "initial"},
    {"nonfinite": "raise", "gain_penalty": 0.1},
    {"momentum": 0.9, "momentum_dtype": "bfloat16"},
    {"lr": torch.tensor(0.01)},
]


@pytest.mark.parametrize("options", NEROS, ids=str)
def test_nero(options):
    net = model()
    optimizer = Nero(net, fused=False, **options)
    before = [param.detach().clone() for param in net.parameters()]
    step(net, optimizer)
    for param, old in zip(net.parameters(), before, strict=True):
        assert not torch.equal(param, old)
    weight = net[2].weight
    if not options.get("constraint"):
        assert (weight.norm(dim=1) - 1).abs().max() < 1e-5
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other = Nero(net, fused=False, **options)
    other.load_state_dict(torch.load(file))
    step(net, other)
    assert "neuron" in str(nero.describe(net, **options))
    nero.project_(net)


def test_stochastic_rounding():
    net = model().bfloat16()
    step(net, Nero(net, fused=False, stochastic_rounding=True))


@pytest.mark.parametrize("baseline", [Madam, Lamb, Lars, Fromage])
def test_baselines(baseline):
    net = model()
    step(net, baseline(net, lr=0.01))


def test_balanced():
    net = model()
    optimizer = Balanced(torch.optim.SGD(nero.param_groups(net), lr=0.1, momentum=0.9))
    step(net, optimizer)
    optimizer.load_state_dict(optimizer.state_dict())


def test_diagnostics():
    net = model()
    optimizer = Nero(net, fused=False)
    lines = []
    sink = SimpleNamespace(write=lines.append, close=lambda: None)
    with TurningMonitor(optimizer, net, sinks=[sink], every=1):
        step(net, optimizer)
    assert lines
    check_balance(net)
    balance_(net)
    old = net[2].weight.detach()
    angle = turning_angle(old, old.roll(1, 0), fan_in_dims=(1,))
    assert angle.dtype == torch.float32


def test_xpus_are_asked(monkeypatch):
    weight = SimpleNamespace(device=torch.device("xpu", 0))
    for has_fp64, dtype in ((True, torch.float64), (False, torch.float32)):
        properties = SimpleNamespace(has_fp64=has_fp64)
        monkeypatch.setattr(torch.xpu, "get_device_properties", lambda device, p=properties: p)
        assert precision.sum_dtype(weight) == dtype


def test_sharded():
    on_ranks(2, _ranks)


def _ranks():
    pretend()
    for own in ({}, {"preset": "polar"}, {"constraint": "initial", "nonfinite": "raise"}):
        reference = network()
        steps = [{k: g.nan_to_num(0.0) for k, g in s.items()} for s in gradients(reference, 3)]
        whole = Nero(reference, **OPTIONS, fused=False, **own)
        train(reference, whole, steps)
        sharded = fully_shard(network())
        with NoFloat64():
            optimizer = Nero(sharded, **OPTIONS, fused=False, **own)
            with TurningMonitor(optimizer, sharded, sinks=[], every=1):
                train(sharded, optimizer, steps)
        for param, other in zip(sharded.parameters(), reference.parameters(), strict=True):
            assert isinstance(param, DTensor)
            # Sums are float32, in another order: a rounding of each coefficient.
            torch.testing.assert_close(param.full_tensor(), other, rtol=1e-5, atol=1e-5)
