"""FSDP1: bit-identical to the plain step without sharding, every weight at every step."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from nero import Nero, annotate
from tests.distributed.flat_network import (
    Recorder,
    assert_same_bits,
    batch,
    gathered,
    local_values,
    loss_of,
    network,
    ranges_of,
)
from tests.distributed.ranks import CountingMode, on_ranks

PER_LAYER = {"auto_wrap_policy": ModuleWrapPolicy({nn.Linear, nn.Conv1d})}
PEAK = {"preset": "rows", "momentum_dtype": "bfloat16", "norm": "peak"}
CASES = {
    "one unit": ({}, {"lr": 0.02}),
    "per layer, momentum": (PER_LAYER, {"lr": 0.02, "momentum": 0.9}),
    "rows, initial": (PER_LAYER, {"preset": "rows", "constraint": "initial"}),
    "bfloat16 momentum, peak": (PER_LAYER, PEAK),
    "columns": (PER_LAYER, {"overrides": {"*fc.weight": {"role": "neuron", "neuron_dims": (1,)}}}),
    "SHARD_GRAD_OP": ({"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}, {"constraint": "norm"}),
    "NO_SHARD": ({"sharding_strategy": ShardingStrategy.NO_SHARD}, {"constraint": "mean"}),
}  # fmt: skip


def wrapped(model, **options):
    return FullyShardedDataParallel(
        model, use_orig_params=True, device_id=torch.device("cpu"), **options
    )


def both(options, how=(), dtype=None):
    """A wrapped model with its optimizer, and the same without FSDP1."""
    model = network().to(dtype)
    reference = copy.deepcopy(model)
    plain = Nero(reference, fused=False, **options)
    model = wrapped(model, **dict(how))
    return model, Nero(model, fused=False, **options), reference, plain


def train(model, optimizer, reference, plain, steps):
    recorder = Recorder(optimizer)
    for step in steps:
        model.zero_grad()
        loss_of(model, *batch(step)).backward()
        optimizer.step()
        grads = recorder.whole()
        for name, param in reference.named_parameters():
            param.grad = grads[name].view_as(param) if name in grads else None
        plain.step()
        assert_same_bits(optimizer, reference, f"step {step}")
    optimizer.rule.step = recorder.before


def same_bits_on_rank(cases, num_steps):
    for case in cases:
        how, options = CASES[case]
        model, optimizer, reference, plain = both(options, how)
        if case == "NO_SHARD":
            check_no_shard(model, optimizer, reference, plain)
            continue
        assert_same_bits(optimizer, reference, "as built")
        train(model, optimizer, reference, plain, range(num_steps))
        if dist.get_rank() == 0:
            print(f"FSDP1, {case}, {dist.get_world_size()} ranks: {num_steps} steps bit-identical")


def check_no_shard(model, optimizer, reference, plain):
    """Parameters keep their shapes, and are no ranges."""
    for step in range(3):
        model.zero_grad()
        loss_of(model, *batch(step)).backward()
        pairs = [*zip(model.parameters(), reference.parameters(), strict=True)]
        for param, twin in pairs:
            twin.grad = param.grad.clone()
        optimizer.step()
        plain.step()
        assert all(torch.equal(param, twin) for param, twin in pairs)


def test_same_bits():
    on_ranks(2, same_bits_on_rank, ["per layer, momentum", "columns", "NO_SHARD"], 20)


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_same_bits_in_every_case(num_ranks):
    on_ranks(num_ranks, same_bits_on_rank, [*CASES], 20)


def test_details():
    """What needs two ranks and little else, on one pair of them."""
    on_ranks(2, details_on_rank)


def details_on_rank():
    a_step_has_one_small_all_reduce()
    stochastic_rounding_draws_the_same_noise()
    a_missing_gradient_changes_nothing()
    all_ranks_raise_or_none()
    skipped_neurons_are_counted_once()
    a_checkpoint_resumes_exactly()
    the_fused_kernel_is_close()
    wrong_uses_say_what_to_do()


def the_fused_kernel_is_close():
    """It sums in float64 where ranks share neurons, and in float32 blocks where they do not."""
    model, reference = network(), network()
    plain = Nero(reference, lr=0.02, momentum=0.9)
    model = wrapped(model, **PER_LAYER)
    optimizer = Nero(model, lr=0.02, momentum=0.9)
    recorder = Recorder(optimizer)
    for step in range(3):
        model.zero_grad()
        loss_of(model, *batch(step)).backward()
        optimizer.step()
        grads = recorder.whole()
        for name, param in reference.named_parameters():
            param.grad = grads[name].view_as(param)
        plain.step()
    mine = gathered(local_values(optimizer, lambda flat: flat.detach()))
    for name, param in reference.named_parameters():
        torch.testing.assert_close(mine[name].view_as(param), param, rtol=1e-5, atol=1e-6)


def a_step_has_one_small_all_reduce():
    model, optimizer, *_ = both({"lr": 0.02}, PER_LAYER)
    for step in range(2):
        loss_of(model, *batch(step)).backward()
        with CountingMode() as comm:
            optimizer.step()
        assert comm.get_total_counts() == 1
    num_sums = sum(held.plan.num_slots for held, _ in ranges_of(optimizer))
    num_blocks = sum(len(held.plan.slots) for held, _ in ranges_of(optimizer))
    assert 0 < num_sums < 30
    if dist.get_rank() == 0:
        print(f"FSDP1 per layer: 1 all-reduce of {8 * (5 * num_sums + num_blocks)} bytes per step")
    parts = [held._parts[1] for held, _ in ranges_of(optimizer)]
    loss_of(model, *batch(2)).backward()
    optimizer.step()
    assert all(a is b._parts[1] for a, (b, _) in zip(parts, ranges_of(optimizer), strict=True))


def stochastic_rounding_draws_the_same_noise():
    options = {"lr": 0.02, "momentum": 0.9, "stochastic_rounding": True, "seed": 3}
    options |= {"momentum_dtype": "bfloat16"}
    train(*both(options, PER_LAYER, torch.bfloat16), range(5))


def a_missing_gradient_changes_nothing():
    """On all ranks; where only some lack it, theirs counts as zeros."""
    model, optimizer, reference, plain = both({"lr": 0.02, "momentum": 0.9}, PER_LAYER)
    missing, partial = "`norm.weight`", "`fc.weight`"
    assert any(
        held.plan.slots for held, _ in ranges_of(optimizer) if held.pieces[0].name == partial
    )
    for step in range(4):
        model.zero_grad()
        loss_of(model, *batch(step)).backward()
        parts = []
        for held, _ in ranges_of(optimizer):
            (piece,), grad = held.pieces, held.param.grad
            if piece.name == missing or (piece.name == partial and dist.get_rank() == 1):
                held.param.grad = grad = None
            grad = torch.zeros_like(held.param) if grad is None else grad.clone()
            parts.append((piece.name.strip("`"), piece.start, grad))
        optimizer.step()
        grads = gathered([part for part in parts if len(part[2])])
        for name, param in reference.named_parameters():
            param.grad = None if f"`{name}`" == missing else grads[name].view_as(param)
        plain.step()
        assert_same_bits(optimizer, reference, f"missing gradients, step {step}")


def all_ranks_raise_or_none():
    model, optimizer, *_ = both({"nonfinite": "raise"})
    loss_of(model, *batch(0)).backward()
    optimizer.step()
    before = gathered(local_values(optimizer, lambda flat: flat.detach()))
    loss_of(model, *batch(1)).backward()
    held = {held.pieces[0].name: held for held, _ in ranges_of(optimizer)}
    if dist.get_rank() == 1:
        held["`out.weight`"].param.grad[-1] = float("nan")
    with pytest.raises(FloatingPointError, match=r"`out.weight` is not finite on some rank"):
        optimizer.step()
    after = gathered(local_values(optimizer, lambda flat: flat.detach()))
    assert all(torch.equal(value, before[name]) for name, value in after.items())


def skipped_neurons_are_counted_once():
    model, optimizer, reference, plain = both({"lr": 0.02})
    loss_of(model, *batch(0)).backward()
    for held, _ in ranges_of(optimizer):
        if held.param.grad is not None and len(held.param.grad):
            held.param.grad.fill_(float("inf"))
    optimizer.step()
    for param in reference.parameters():
        param.grad = torch.full_like(param, float("inf"))
    plain.step()
    assert optimizer.num_skipped == plain.num_skipped


def a_checkpoint_resumes_exactly():
    """By way of FSDP.optim_state_dict, which gathers and reshards; and by each rank's own state_dict.

    On CPUs torch 2.13 gathers all tensors of a state into the same memory, so that only the last survives,
    whatever the optimizer. So the first has one such tensor.
    """
    resumes({"lr": 0.02}, is_gathered=True)
    options = {"preset": "rows", "constraint": "initial", "momentum_dtype": "bfloat16"}
    resumes(options, is_gathered=False)


def resumes(options, is_gathered):
    model, optimizer, reference, plain = both(options, PER_LAYER)
    train(model, optimizer, reference, plain, range(3))
    weights = copy.deepcopy(model.state_dict())
    saved = copy.deepcopy(
        FullyShardedDataParallel.optim_state_dict(model, optimizer)
        if is_gathered
        else optimizer.state_dict()
    )
    train(model, optimizer, reference, plain, range(3, 6))
    again = wrapped(network(), **PER_LAYER)
    resumed = Nero(again, fused=False, **options)
    again.load_state_dict(weights)
    if is_gathered:
        saved = FullyShardedDataParallel.optim_state_dict_to_load(again, resumed, saved)
    resumed.load_state_dict(saved)
    for step in range(3, 6):
        again.zero_grad()
        loss_of(again, *batch(step)).backward()
        resumed.step()
    assert_same_bits(resumed, reference, f"resumed, {options}")


def wrong_uses_say_what_to_do():
    model = wrapped(network())
    with pytest.raises(
        RuntimeError, match=r"flattened by FSDP1.*build Nero\(model\) from the model"
    ):
        Nero([*model.parameters()])
    with pytest.raises(
        RuntimeError, match=r"flattened by FSDP1.*build Nero\(model\) from the model"
    ):
        Nero([*annotate(network()).parameters(), *model.parameters()])
    polar = Nero(model, preset="polar", fused=False, overrides={"out.weight": {"role": "neuron"}})
    loss_of(model, *batch(0)).backward()
    with pytest.raises(RuntimeError, match=r'^`.*` has direction=.polar.*preset="rows"'):
        polar.step()
    early = network()
    optimizer = Nero(early)
    early = wrapped(early)
    loss_of(early, *batch(0)).backward()
    with pytest.raises(RuntimeError, match="FSDP1"):
        optimizer.step()
    one = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    for preset in ("paper", "polar"):
        with pytest.raises(RuntimeError, match=r"`emb.weight` and 11 more .* use_orig_params=True"):
            Nero(one, preset=preset)
    another_ranks_checkpoint_is_refused()


def another_ranks_checkpoint_is_refused():
    """Ranges depend on the rank and on how many there are."""
    _, optimizer, *_ = both({"lr": 0.02}, PER_LAYER)
    every = [None, None]
    dist.all_gather_object(every, optimizer.state_dict())
    with pytest.raises(
        ValueError, match=r"a different range from this rank's; .*FSDP.optim_state_dict"
    ):
        optimizer.load_state_dict(every[1 - dist.get_rank()])


@pytest.mark.slow
def test_hybrid_sharding():
    on_ranks(4, hybrid_on_rank)


def hybrid_on_rank():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    how = {"sharding_strategy": ShardingStrategy.HYBRID_SHARD, "device_mesh": mesh}
    model, optimizer, reference, plain = both({"lr": 0.02, "momentum": 0.9}, how)
    recorder = Recorder(optimizer)
    for step in range(5):
        model.zero_grad()
        loss_of(model, *batch(step)).backward()
        optimizer.step()
        grads = gathered([(name, *part) for name, part in recorder.grads.items()], mesh["shard"])
        for name, param in reference.named_parameters():
            param.grad = grads[name].view_as(param)
        plain.step()
        mine = local_values(optimizer, lambda flat: flat.detach())
        whole = gathered(mine, mesh["shard"])
        for name, param in reference.named_parameters():
            assert torch.equal(whole[name].view_as(param), param), name
