"""Ranks decide alike, whatever each of them holds: all raise or none, and nobody waits in vain.

docs/decisions/ranks-agree.md lists the decisions; what is tested elsewhere is named there.
"""

import copy
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from nero import Balanced, Nero
from nero.baselines import Fromage, Lamb, Lars, Madam
from nero.diagnostics import TurningMonitor
from tests.distributed.ranks import (
    OPTIONS,
    CountingMode,
    assert_same_bits,
    finite_gradients,
    gradients,
    network,
    on_ranks,
    sharded_grad,
    train,
)
from tests.distributed.test_same_bits import SHARDINGS, _fsdp_dim_1, _on_dim_1

# By number of ranks: how parameters are cut, and into how many process groups.
RAISING = {
    2: {"FSDP 2": 1, "FSDP on dim 1": 1, "TP 2": 1, "DDP 2": 0},
    4: {"FSDP 4": 1, "FSDP 4, by layer": 1, "HSDP 2x2": 2, "FSDP+TP 2x2": 2},
}


@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks_agree(world_size):
    on_ranks(world_size, _all_decisions, world_size)


def _all_decisions(world_size):
    for name, num_groups in RAISING[world_size].items():
        # With the kernel once, where some neurons are whole and some cut.
        for fused in (False, None) if name in ("FSDP on dim 1", "FSDP+TP 2x2") else (False,):
            raise_together(name, num_groups, fused)
    for decision in DECISIONS + [raise_inside_compile] * (world_size == 2):
        torch.manual_seed(0)
        decision()


def raise_together(how, num_groups, fused):
    """NaN in one shard: all ranks raise the same error, nothing changes, and the job goes on."""
    _, shard, num_sums, _ = SHARDINGS[how]
    options = {**OPTIONS, "nonfinite": "raise", "fused": fused}
    calm, model = shard(network()), shard(network())
    undisturbed, optimizer = Nero(calm, **options), Nero(model, **options)
    names = [name for group in optimizer.param_groups for name in group["param_names"]]
    num_raised = 0
    counted = range(3)  # with a step that raises; counting makes them slow
    for step, grads in enumerate(finite_gradients(8)):
        train(calm, undisturbed, [grads])
        set_grads(model, grads)
        name = names[step % len(names)]
        has_nan = spoil(dict(model.named_parameters())[name], step, everywhere=num_groups == 0)
        if has_nan:
            before = everything(model, optimizer)
            counter = CountingMode() if step in counted else None
            with counter or nullcontext(), pytest.raises(FloatingPointError) as caught:
                optimizer.step()
            assert not counter or counter.get_total_counts() == num_groups, how
            for message in on_all_ranks(str(caught.value)):
                assert f"the gradient of `{name}` is not finite" in message, (how, message)
                assert "nothing was updated" in message
            assert_unchanged(before, everything(model, optimizer), how)
            num_raised += 1
        set_grads(model, grads)
        counter = CountingMode() if step in counted else None
        with counter or nullcontext():
            optimizer.step()
        assert not counter or counter.get_total_counts() == num_groups + num_sums, how
        # To the bit, with the job that never had a NaN.
        assert_unchanged(everything(calm, undisturbed), everything(model, optimizer), how)
    assert num_raised >= 5, (how, num_raised)


def raise_without_a_gradient():
    """A rank that has no gradient at all takes part, and the first bad parameter is named by all."""
    model = fully_shard(network())
    optimizer = Nero(model, nonfinite="raise", **OPTIONS)
    set_grads(model, finite_gradients(1)[0])
    last = dist.get_world_size() - 1
    if dist.get_rank() == 0:
        optimizer.zero_grad()
    elif dist.get_rank() == last:
        for param in (model.wide.weight, model.experts, model.conv.bias):
            param.grad.to_local().fill_(torch.inf)
    with pytest.raises(FloatingPointError) as caught:
        optimizer.step()
    assert len({*on_all_ranks(str(caught.value))}) == 1


def raise_on_several_meshes():
    """A bad gradient of a parameter on one mesh stops the parameters of the other."""
    world = dist.get_world_size()
    flat = init_device_mesh("cpu", (world,))
    grid = init_device_mesh("cpu", (world // 2, 2))
    params = [
        nn.Parameter(distribute_tensor(torch.randn(8, 8), mesh, placements))
        for mesh, placements in (
            (grid, [Replicate(), Shard(1)]),
            (flat, [Shard(0)]),
            (grid, [Shard(0), Shard(1)]),
        )
    ]
    optimizer = Nero([*params, nn.Parameter(torch.randn(3))], nonfinite="raise")
    for culprit in range(world):
        for param in optimizer.param_groups[0]["params"]:
            param.grad = torch.ones_like(param)
        if dist.get_rank() == culprit:  # one that is not sharded is agreed on here, too
            param.grad[1] = torch.nan
        with pytest.raises(FloatingPointError, match="parameter 3 of shape"):
            optimizer.step()


def raise_inside_compile():
    layer = fully_shard(nn.Linear(6, 4, bias=False))
    optimizer = Nero(layer, nonfinite="raise", fused=False)
    step = torch.compile(optimizer.step, backend="eager")  # traced; what it makes of it is torch's
    for number in range(3):
        layer.weight.grad = sharded_grad(torch.randn(4, 6), layer.weight)
        before = layer.weight.to_local().clone()
        if number == 1:
            spoil(layer.weight, number)
            with pytest.raises(FloatingPointError, match="`weight` is not finite"):
                step()
        else:
            step()
        assert torch.equal(before, layer.weight.to_local()) == (number == 1)


def other_rules_send_nothing():
    for nonfinite in ("skip", "propagate"):
        layer = fully_shard(nn.Linear(6, 8))
        optimizer = Nero(layer, nonfinite=nonfinite)
        set_grads(layer, {"weight": torch.randn(8, 6), "bias": torch.randn(8)})
        with CountingMode() as comm:
            optimizer.step()
        assert comm.get_total_counts() == 0, nonfinite


def baselines_with_gradients_on_some_ranks():
    """Zeros stand for a missing part, as with Nero; what has no gradient anywhere is left alone."""
    for make in (Lamb, Lars, Fromage):
        reference, model = network(), fully_shard(network())
        whole, sharded = make(reference, lr=0.1), make(model, lr=0.1)
        first = {n: dict(model.named_parameters())[n].to_local().clone() for n in UNUSED}
        for grads in finite_gradients(3):
            set_grads(model, grads)
            drop_on_first_rank(model)
            set_grads(reference, first_part_zeroed(grads, model))
            for name, param in [*reference.named_parameters(), *model.named_parameters()]:
                if name in UNUSED:
                    param.grad = None
            whole.step()
            sharded.step()
        assert_same_bits(model, reference, f"{make.__name__}:")
        for name in UNUSED:
            param = dict(model.named_parameters())[name]
            assert torch.equal(param.to_local(), first[name]), name
            assert sharded.state[param]["step"] == 0


def madam_with_gradients_on_some_ranks():
    """It needs no norms, so each rank steps what it has a gradient of, and nothing is sent."""
    model = fully_shard(nn.Linear(6, 8, bias=False))
    optimizer = Madam(model)
    before = model.weight.to_local().clone()
    set_grads(model, {"weight": torch.ones(8, 6)})
    drop_on_first_rank(model, ["weight"])
    with CountingMode() as comm:
        optimizer.step()
    assert comm.get_total_counts() == 0
    assert torch.equal(before, model.weight.to_local()) == (dist.get_rank() == 0)


def balanced_with_gradients_on_some_ranks():
    """Neurons that ranks share are projected by all of them."""
    reference = nn.Linear(8, 6, bias=False)
    for constraint in ("balanced", "initial"):
        model = fully_shard(copy.deepcopy(reference), shard_placement_fn=lambda param: Shard(1))
        alone = copy.deepcopy(reference)
        optimizers = [
            Balanced(torch.optim.SGD(each.parameters(), lr=0.1), constraint)
            for each in (model, alone)
        ]
        for _ in range(3):
            grads = {"weight": torch.randn(6, 8)}
            set_grads(model, grads)
            drop_on_first_rank(model, ["weight"])
            set_grads(alone, first_part_zeroed(grads, model, ["weight"]))
            for optimizer in optimizers:
                optimizer.step()
        # DTensor adds up in another order than one process does.
        torch.testing.assert_close(model.weight.full_tensor(), alone.weight.detach())


def unfrozen_with_a_gradient_on_some_ranks():
    """State is made by all ranks at that step: the scale of a bias and the norms of neurons are sums."""
    model = fully_shard(nn.Linear(8, 6), shard_placement_fn=_on_dim_1)
    model.requires_grad_(False)
    optimizer = Nero(model, constraint="initial")
    assert not optimizer.state
    model.requires_grad_(True)
    set_grads(model, {"weight": torch.randn(6, 8), "bias": torch.randn(6)})
    drop_on_first_rank(model, ["weight", "bias"])
    optimizer.step()
    states = [optimizer.state[param] for param in model.parameters()]
    for numbers in (states[0]["radius"].to_local(), states[1]["scale"]):
        assert len({*on_all_ranks(str(numbers.tolist()))}) == 1


def ranks_with_other_backends():
    """One rank with the kernel and one without: the same sums travel, and weights agree."""
    reference, model = network(), _fsdp_dim_1(network())
    fused = False if dist.get_rank() == 0 else None
    whole, optimizer = Nero(reference, fused=False, **OPTIONS), Nero(model, fused=fused, **OPTIONS)
    steps = gradients(reference, 5)
    train(reference, whole, steps)
    train(model, optimizer, steps)
    for (name, p), q in zip(reference.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(q.full_tensor(), p.detach(), rtol=0, atol=1e-6, msg=name)
    assert optimizer.num_skipped == whole.num_skipped > 0


def skipped_in_part():
    """NaN in one rank's part of a neuron: all ranks skip that neuron, and no other."""
    layer = fully_shard(nn.Linear(8, 6, bias=False), shard_placement_fn=lambda param: Shard(1))
    optimizer = Nero(layer)
    before = layer.weight.full_tensor()
    grad = torch.randn(6, 8)
    grad[2, -1] = torch.nan
    layer.weight.grad = sharded_grad(grad, layer.weight)
    optimizer.step()
    is_same = (layer.weight.full_tensor() == before).all(dim=1)
    assert is_same.tolist() == [row == 2 for row in range(6)]
    assert on_all_ranks(optimizer.num_skipped) == [1] * dist.get_world_size()


def noise_on_replicas():
    """Stochastic rounding draws the same noise on all ranks, so replicas stay equal."""
    layer = nn.Linear(64, 32, bias=False, dtype=torch.bfloat16)
    optimizer = Nero(layer, lr=1e-3, stochastic_rounding=True)
    torch.manual_seed(dist.get_rank())  # nothing of it comes from torch's generators
    torch.rand(1)
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        layer.weight.grad = torch.randn(32, 64, generator=generator).bfloat16()
        optimizer.step()
    assert len({*on_all_ranks(layer.weight.float().sum(1).tolist().__repr__())}) == 1


def monitor_with_gradients_on_some_ranks():
    """All ranks report the same of the same layers."""
    model = _fsdp_dim_1(network())
    optimizer = Nero(model, **OPTIONS)
    with TurningMonitor(optimizer, every=2, max_layers=3) as monitor:
        for grads in finite_gradients(5):
            set_grads(model, grads)
            drop_on_first_rank(model)
            optimizer.step()
            assert len({*on_all_ranks(str(monitor.last_report))}) == 1


def renewed_and_loaded():
    """Both make state anew where all ranks do: before the first step, and from equal checkpoints."""
    model = _fsdp_dim_1(network())
    optimizer = Lamb(model)
    Balanced(optimizer)
    nero = Nero(model, constraint="initial", **OPTIONS)
    nero.load_state_dict(copy.deepcopy(nero.state_dict()))
    train(model, nero, finite_gradients(1))
    scales = [s["scale"].item() for s in nero.state.values() if "scale" in s]
    assert len({*on_all_ranks(str(scales))}) == 1
    assert len({*on_all_ranks(str([s["step"].item() for s in nero.state.values()]))}) == 1


def scales_without_what_is_not_finite():
    """-inf on one rank alone: all ranks have the scale and the radii of one process."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    bias = torch.linspace(-1, 2, 9).index_fill(0, torch.tensor(8), -torch.inf)
    weight = torch.randn(4, 8).index_put(
        (torch.tensor(1), torch.tensor(7)), torch.tensor(-torch.inf)
    )
    initial = {"role": "neuron", "neuron_dims": (0,), "constraint": "initial"}
    kept = []
    for cut in (False, True):
        params = [
            nn.Parameter(distribute_tensor(each, mesh, [Shard(dim)]) if cut else each.clone())
            for each, dim in ((bias, 0), (weight, 1))
        ]
        groups = [{"params": params[:1], "role": "bias"}, {"params": params[1:], **initial}]
        optimizer = Nero(groups, fused=False)
        for _ in range(3):
            for param in params:
                grad = torch.ones(param.shape)
                param.grad = sharded_grad(grad, param) if cut else grad
            optimizer.step()
        state = optimizer.state
        kept.append((state[params[0]]["scale"], _full(state[params[1]]["radius"])))
        kept[-1] += tuple(_full(param.detach()) for param in params)
    for one, many in zip(*kept, strict=True):
        torch.testing.assert_close(many, one, rtol=1e-6, atol=1e-6)
    assert torch.isfinite(kept[1][0])
    assert torch.isfinite(kept[1][1]).all()


def missed_steps_of_a_part():
    """NaN in one rank's part of some neurons, from the start: they turn later as in one process."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    weight = torch.randn(4, 8)
    whole, cut = (
        nn.Parameter(weight.clone()),
        nn.Parameter(distribute_tensor(weight, mesh, [Shard(1)])),
    )
    layout = {"role": "neuron", "neuron_dims": (0,)}
    optimizers = [Nero([{"params": [p], **layout}], fused=False) for p in (whole, cut)]
    for step in range(12):
        grad = torch.randn(4, 8)
        if step < 8:
            grad[1, 7], grad[2, 0] = torch.nan, torch.inf if step % 2 else 1.0
        whole.grad, cut.grad = grad, sharded_grad(grad, cut)
        for optimizer in optimizers:
            optimizer.step()
        averages = [
            _full(o.state[p]["exp_avg_norm"]) for o, p in zip(optimizers, (whole, cut), strict=True)
        ]
        assert torch.equal(*averages)
        assert torch.equal(*map(torch.signbit, averages))
    assert torch.equal(cut.full_tensor(), whole)


def _full(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


DECISIONS = [
    raise_without_a_gradient,
    raise_on_several_meshes,
    other_rules_send_nothing,
    baselines_with_gradients_on_some_ranks,
    madam_with_gradients_on_some_ranks,
    balanced_with_gradients_on_some_ranks,
    unfrozen_with_a_gradient_on_some_ranks,
    ranks_with_other_backends,
    skipped_in_part,
    scales_without_what_is_not_finite,
    missed_steps_of_a_part,
    noise_on_replicas,
    monitor_with_gradients_on_some_ranks,
    renewed_and_loaded,
]

# --- gradients, and what they do ---

PARTIAL = ("wide.weight", "up.weight", "norm.bias")  # the first rank has no gradient of these
UNUSED = ("two.weight", "two.bias")  # nobody has one of these


def set_grads(model, grads):
    for name, param in model.named_parameters():
        param.grad = sharded_grad(grads[name], param)


def drop_on_first_rank(model, names=PARTIAL):
    if dist.get_rank() == 0:
        for name in names:
            dict(model.named_parameters())[name].grad = None


def first_part_zeroed(grads, model, names=PARTIAL):
    """What one process must be given for what several bring of which the first has no gradient."""
    grads = {name: grad.clone() for name, grad in grads.items()}
    for name in names:
        param = dict(model.named_parameters())[name]
        dim = param.placements[0].dim
        grads[name].chunk(dist.get_world_size(), dim)[0].zero_()
    return grads


def spoil(param, step, *, everywhere=False):
    """Write a NaN into the gradient that one rank holds; return whether there was room for it."""
    has_nan = torch.zeros(())
    if everywhere or dist.get_rank() == step % dist.get_world_size():
        local = param.grad.to_local() if hasattr(param.grad, "to_local") else param.grad
        if local.numel():
            local.view(-1)[step % local.numel()] = torch.nan if step % 2 else torch.inf
            has_nan += 1
    dist.all_reduce(has_nan)
    return bool(has_nan)


def everything(model, optimizer):
    """Copies of what this rank holds of weights and state."""
    tensors = []
    for param in model.parameters():
        tensors += [param, *optimizer.state[param].values()]
    return [(t.to_local() if hasattr(t, "to_local") else t).detach().clone() for t in tensors]


def assert_unchanged(before, after, what):
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True)), what


def on_all_ranks(value):
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values
