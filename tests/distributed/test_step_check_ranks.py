"""Does the check read what several ranks hold, and do all of them raise when one does something else?"""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp1
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from nero import Nero
from nero.diagnostics import StepCheck, StepError
from tests.distributed.ranks import on_ranks


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(7, 6)
        self.up = nn.ConvTranspose1d(6, 8, 3, padding=1)
        self.wide = nn.Linear(8, 6)
        self.narrow = nn.Linear(6, 8)
        self.unused = nn.Linear(8, 3)
        self.head = nn.Linear(8, 7, bias=False)

    def forward(self, tokens):
        x = self.up(self.tokens(tokens).transpose(1, 2)).transpose(1, 2)
        return self.head(x + self.narrow(self.wide(x).relu()))


def network():
    torch.manual_seed(0)
    return Network()


def _ddp(model):
    return DistributedDataParallel(model, find_unused_parameters=True)


def _tp(model):
    mesh = init_device_mesh("cpu", (2,))
    return parallelize_module(model, mesh, {"wide": ColwiseParallel(), "narrow": RowwiseParallel()})


def _fsdp1(model):
    return Fsdp1(model, use_orig_params=True, device_id=torch.device("cpu"))


WAYS = {"DDP": _ddp, "FSDP2": fully_shard, "TP": _tp, "alone": lambda model: model}


def backward(model, optimizer, seed):
    optimizer.zero_grad()
    torch.manual_seed(seed)
    tokens = torch.randint(7, (4, 5))
    nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()


def test_two_ranks():
    on_ranks(2, _all)


def _all():
    for name, wrap in WAYS.items():
        for preset in ("rows", "polar"):
            is_quiet(wrap, preset, name)
    _a_rank_skips_the_step(_ddp)
    _a_rank_skips_the_step(fully_shard)
    _replicas_differ()
    is_quiet(_fsdp1, "rows", "FSDP1")
    _fsdp1_from_the_middle()
    _fsdp1_of_another_optimizer()


def is_quiet(wrap, preset, name):
    model = wrap(network())
    optimizer = Nero(model, preset=preset, fused=False)  # a kernel would be compiled first
    check = StepCheck(model, optimizer)
    for step in range(3):
        backward(model, optimizer, step * 2 + (name in ("DDP", "FSDP1", "FSDP2")) * dist.get_rank())
        with check:
            optimizer.step()
    assert check.report
    assert check.report.num_neurons == 7 + 8 + 6 + 8 + 3 + 7, name
    assert not check.report.bounds_only


def _a_rank_skips_the_step(wrap):
    model = wrap(network())
    optimizer = Nero(model, fused=False)
    backward(model, optimizer, dist.get_rank())

    def step():
        before = [full_or_local(p).clone() for p in model.parameters()]
        optimizer.step()
        if dist.get_rank() == 1:  # it takes part in the all-reduce, and writes nothing
            for param, old in zip(model.parameters(), before, strict=True):
                full_or_local(param).copy_(old)

    with pytest.raises(StepError) as caught, StepCheck(model, optimizer):
        step()
    messages = [None, None]
    dist.all_gather_object(messages, str(caught.value))
    assert messages[0] == messages[1]
    faults = {(fault.name, fault.kind): fault for fault in caught.value.report.faults}
    if wrap is _ddp:
        assert faults["wide.weight", "still"].ranks == (1,)
        assert "`wide.weight` on rank 1" in messages[0]
        assert "its values on rank 1 differ from those on rank 0" in messages[0]
    assert 0 < faults["wide.weight", "still"].count <= 6
    assert ("unused.weight", "still") not in faults


def full_or_local(param):
    return (param.to_local() if hasattr(param, "to_local") else param).detach()


def _replicas_differ():
    """A rank whose gradients are its own, as without DDP's hooks."""
    model = _ddp(network())
    optimizer = Nero(model, fused=False)
    backward(model, optimizer, 0)
    if dist.get_rank() == 1:
        model.module.wide.weight.grad.mul_(torch.rand(6, 8))
    with pytest.raises(StepError) as caught, StepCheck(model, optimizer):
        optimizer.step()
    assert {(f.name, f.kind) for f in caught.value.report.faults} == {("wide.weight", "replicas")}


def _fsdp1_from_the_middle():
    """What an engine hides of the state cannot be checked, and gives no false alarm."""
    model = _fsdp1(network())
    optimizer = Nero(model, preset="rows", constraint="initial", fused=False)
    check = StepCheck(model, optimizer)
    for step in range(4):
        backward(model, optimizer, step * 2 + dist.get_rank())
        if step < 2:
            optimizer.step()
        else:
            with check:
                optimizer.step()
    assert check.report.bounds_only


def _fsdp1_of_another_optimizer():
    """Values are read as torch shows them, also of an optimizer that steps on something else."""
    whole = network()
    model = _fsdp1(copy.deepcopy(whole))
    optimizer = Nero(whole, fused=False)
    check = StepCheck(model, optimizer)
    assert {n: w.neurons.state_shape for n, w in check._watched.items()} == {
        n: w.neurons.state_shape for n, w in StepCheck(whole, optimizer)._watched.items()
    }
    backward(model, optimizer, 0)
    with pytest.raises(StepError) as caught, check:
        optimizer.step()
    faults = {(f.name, f.kind): f for f in caught.value.report.faults}
    assert faults["wide.weight", "still"].count == 6
    assert faults["wide.weight", "off before"].count == 6
