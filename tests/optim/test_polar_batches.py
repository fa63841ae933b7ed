"""Layers of equal shape get their polar directions together: in few operations, and the same ones."""

import warnings
from collections import Counter

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import nero
from nero import Nero
from nero.core import batches
from nero.core.presets import find_preset
from nero.core.spec import Hyper
from nero.core.update import Update
from nero.layout import neurons
from nero.optim.directions import follow_directions
from nero_tools.models import MODELS
from tests.distributed.ranks import on_ranks
from tests.operations import Operations


@pytest.fixture
def on_gpu(monkeypatch):
    """Let CPU tensors be stacked, as those of other devices are."""
    monkeypatch.setattr(batches, "_UNSTACKED", frozenset())


def meta_updates(name):
    """What a step of the preset has of a model's blocks, without the memory."""
    with torch.device("meta"):
        blocks = MODELS[name]().blocks
    options = {"momentum": 0.9, "direction": "polar", "norm": "peak"}
    assert options.items() <= find_preset("polar").options.items()
    return [
        Update(
            weight=param,
            grad=torch.empty_like(param),
            state={"exp_avg": torch.empty_like(param)},
            neurons=neurons(0).at(param.shape),
            hyper=Hyper(**options),
            lr=0.03,
            position=position,
        )
        for position, param in enumerate(p for p in blocks.parameters() if p.ndim == 2)
    ]


def test_gpt2_takes_300_operations_and_bounded_memory():
    updates = meta_updates("gpt2-124m")
    with torch.no_grad(), Operations() as seen:
        directions = follow_directions(updates)
    assert len(directions) == 48
    assert seen.counts["bmm"] + seen.counts["baddbmm"] == 60
    assert seen.counts.total() <= 300
    # All directions, which the kernel then reads, and 4.25 times the largest batch.
    held = 4 * sum(update.weight.numel() for update in updates)
    largest = max(sum(u.grad.numel() for u in batch) for batch in batches.batches_of(updates))
    assert largest <= batches._MAX_WEIGHTS
    assert held < seen.peak <= held + 4.3 * 4 * largest


def test_a_group_of_large_layers_is_split():
    updates = meta_updates("llama-1b")
    sizes = Counter()
    for batch in batches.batches_of(updates):
        num_weights = sum(update.grad.numel() for update in batch)
        assert len(batch) == 1 or num_weights <= batches._MAX_WEIGHTS
        assert len({update.grad.shape for update in batch}) == 1
        sizes[batch[0].grad.shape] += len(batch)
    assert sizes == Counter(update.grad.shape for update in updates)
    with torch.no_grad(), Operations() as seen:
        follow_directions(updates)
    held = 4 * sum(update.weight.numel() for update in updates)
    assert seen.peak <= held + 4.3 * 4 * batches._MAX_WEIGHTS


class Several(nn.Module):
    """Two or three of everything that follows directions, in two memory formats."""

    def __init__(self):
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(6, 5) for _ in range(3))
        self.transposed = nn.ModuleList(nn.Linear(5, 6) for _ in range(2))
        self.conv = nn.ModuleList(nn.Conv2d(4, 6, 3) for _ in range(2))
        self.last = nn.ModuleList(
            nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last) for _ in range(2)
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(4, 6, 3, groups=2) for _ in range(2))
        self.experts = nn.ParameterList(nn.Parameter(torch.randn(3, 4, 5)) for _ in range(2))
        self.half = nn.ModuleList(nn.Linear(6, 5, dtype=torch.bfloat16) for _ in range(2))


def trained(*, stack, num_steps=4, lr=0.03, **options):
    torch.manual_seed(0)
    model = Several()
    overrides = {"experts.*": {"role": "neuron", "neuron_dims": (0, 1)}}
    optimizer = Nero(model, direction="polar", lr=lr, overrides=overrides, **options)
    sizes = []
    for step in range(num_steps):
        for param in model.parameters():
            param.grad = torch.randn_like(param)
        if step == 2:
            model.linear[1].weight.grad[3, 2] = torch.nan
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batches, "_UNSTACKED", frozenset() if stack else frozenset({"cpu"}))
            patch.setattr("nero.optim.directions.batches_of", _noting(sizes))
            optimizer.step()
    return model, optimizer, sizes


def _noting(sizes):
    def batches_of(updates):
        found = batches.batches_of(updates)
        sizes.append(sorted(map(len, found)))
        return found

    return batches_of


@pytest.mark.parametrize("fused", [False, None])
@pytest.mark.parametrize(
    "options",
    [{}, {"momentum": 0.9}, {"momentum": 0.9, "momentum_dtype": "bfloat16"}, {"nonfinite": "skip"}],
    ids=str,
)
def test_stacked_layers_turn_as_they_do_alone(fused, options):
    # Products of a batch may round otherwise: these small ones differ by a few units in the last place.
    alone, reference, _ = trained(stack=False, fused=fused, **options)
    model, optimizer, sizes = trained(stack=True, fused=fused, **options)
    assert sizes == [[2, 2, 2, 2, 3, 4]] * 4  # both memory formats of Conv2d are in one
    assert optimizer.num_skipped == reference.num_skipped == 1
    for (name, param), other in zip(model.named_parameters(), alone.parameters(), strict=True):
        bound = {"rtol": 1e-5, "atol": 1e-5} if param.dtype == torch.float32 else {}
        torch.testing.assert_close(param, other, **bound, msg=lambda text, name=name: name + text)
        old, new = reference.state[other], optimizer.state[param]
        if "exp_avg" in new:  # the average of gradients, which no product touches
            assert torch.equal(new["exp_avg"], old["exp_avg"]), name
            assert new["exp_avg"].stride() == old["exp_avg"].stride()


def test_layers_that_stand_still_are_not_stacked_with_others():
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(4)))
    zero, rate = {"lr": 0.0}, {"lr": torch.tensor(0.1)}
    overrides = {"0.weight": zero, "2.weight": zero, "3.weight": rate}
    optimizer = Nero(model, direction="polar", momentum=0.9, overrides=overrides)
    before = [param.detach().clone() for param in model.parameters()]
    for param in model.parameters():
        param.grad = torch.randn(4, 4)
    sizes = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "_UNSTACKED", frozenset())
        patch.setattr("nero.optim.directions.batches_of", _noting(sizes))
        optimizer.step()
    assert sizes == [[1, 1, 2]]
    for i, (param, old) in enumerate(zip(model.parameters(), before, strict=True)):
        assert torch.equal(param, old) == (i in (0, 2))
        assert optimizer.state[param]["exp_avg"].any() == (i not in (0, 2))


@pytest.mark.usefixtures("on_gpu")
def test_registered_functions_get_one_layer_at_a_time(monkeypatch):
    from nero.core import directions

    monkeypatch.setattr(directions, "_FUNCTIONS", dict(directions._FUNCTIONS))
    shapes = []

    def watched(matrices):
        shapes.append(tuple(matrices.shape))
        return matrices

    nero.register_direction("watched", watched)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = Nero(model, direction="watched")
    for param in model.parameters():
        param.grad = torch.randn_like(param)
    optimizer.step()
    assert shapes == [(1, 4, 4)] * 2


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("is_tensor", [True, False])
def test_a_compiled_step_stacks_too(is_tensor):
    ends = []
    for compiled in (False, True):
        torch.compiler.reset()
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(5, 5) for _ in range(3)))
        lr = torch.tensor(0.03) if is_tensor else 0.03
        optimizer = Nero(model, direction="polar", momentum=0.9, lr=lr)
        step = optimizer.step
        if compiled:
            step = torch.compile(step, backend="eager", fullgraph=True)
        for _ in range(3):
            for param in model.parameters():
                param.grad = torch.randn_like(param)
            step()
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] / 2
        ends.append([*model.parameters()])
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-5, atol=1e-6)


def test_owners_stack_what_they_hold():
    on_ranks(2, _owners)


def _owners():
    ends = {}
    for stack in (False, True):
        batches._UNSTACKED = frozenset() if stack else frozenset({"cpu"})
        for sharded in (False, True):
            torch.manual_seed(0)
            model = nn.Sequential(*(nn.Linear(6, 6, bias=False) for _ in range(5)))
            if sharded:
                fully_shard(model)
            options = {"direction": "polar", "momentum": 0.9, "lr": 0.03, "fused": False}
            optimizer = Nero(model, **options)
            for _ in range(3):
                model(torch.randn(4, 6)).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            full = [getattr(p, "full_tensor", lambda p=p: p)() for p in model.parameters()]
            ends[stack, sharded] = full
    for key, params in ends.items():
        torch.testing.assert_close(params, ends[False, False], rtol=1e-4, atol=1e-5, msg=str(key))


def test_on_cpus_a_direction_has_the_bits_that_it_has_alone():
    """Threads split a batch in another way than one product, so nothing is stacked there."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nero.LayoutWarning)
            ends = []
            for num in (1, 4):
                torch.manual_seed(0)
                weights = [nn.Parameter(torch.randn(64, 200)) for _ in range(num)]
                optimizer = Nero(weights, direction="polar")
                for weight in weights:
                    weight.grad = weight.detach().sin()
                optimizer.step()
                ends.append(weights[0].detach())
        assert torch.equal(*ends)
    finally:
        torch.set_num_threads(before)
