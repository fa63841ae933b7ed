"""What users of torch's engine do besides: each works, or says what to do instead."""

import copy
from itertools import product

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from nero import Nero, project_
from tests.distributed.ranks import (
    OPTIONS,
    assert_same_bits,
    gradients,
    network,
    on_ranks,
    sharded_grad,
    train,
)
from tests.distributed.test_same_bits import _on_dim_1


def test_on_two_ranks():
    on_ranks(2, _all_modes)


def _all_modes():
    for mode in MODES:
        torch.manual_seed(0)
        mode()


def ranks_disagree_on_grad_is_none():
    """What is cut takes zeros for a missing part; no rank waits for another one in vain."""
    mesh = init_device_mesh("cpu", (2,))
    weight, grad = torch.randn(4, 6), torch.randn(4, 6)
    ways = ((1, {}), (1, {"direction": "polar"}), (0, {"preset": "polar"}))
    for (dim, own), owner in product(ways, (0, 1)):
        options = {"fused": False, **own}
        half = weight.shape[dim] // 2
        part = grad.clone()
        part.narrow(dim, 0 if owner else half, half).zero_()  # of the other rank
        whole = nn.Parameter(weight.clone())
        cut = nn.Parameter(distribute_tensor(weight, mesh, [Shard(dim)]))
        unused = nn.Parameter(distribute_tensor(weight, mesh, [Shard(dim)]))
        reference, optimizer = Nero([whole], **options), Nero([cut, unused], **options)
        before = unused.to_local().clone()
        for _ in range(3):
            whole.grad = part.clone()
            cut.grad = sharded_grad(grad, cut) if dist.get_rank() == owner else None
            reference.step()
            optimizer.step()
        assert torch.equal(cut.full_tensor(), whole), (dim, own, owner)
        assert torch.equal(unused.to_local(), before)
        assert optimizer.state[unused]["step"] == 0


def gradients_whose_memory_lacks_the_sign():
    """The negative bit of what a rank holds is obeyed: a kernel would read the memory as it is."""
    mesh = init_device_mesh("cpu", (2,))
    weight, grad = torch.randn(4, 6), torch.randn(4, 6)
    for dim in (0, 1):
        params = [nn.Parameter(distribute_tensor(weight, mesh, [Shard(dim)])) for _ in range(2)]
        for param in params:
            param.grad = sharded_grad(grad, param)
        lazy = torch._neg_view(-params[1].grad.to_local())
        options = {"run_check": False, "shape": weight.shape, "stride": weight.stride()}
        params[1].grad = DTensor.from_local(lazy, mesh, [Shard(dim)], **options)
        assert params[1].grad.to_local().is_neg()
        for param in params:
            Nero([param]).step()
        assert torch.equal(params[0].to_local(), params[1].to_local())


def parameters_swapped_after_construction():
    """As accelerate does: the optimizer is built first, then its groups get the sharded parameters."""
    reference, model = network(), network()
    steps = gradients(reference, 5)
    options = {**OPTIONS, "fused": False}
    whole, optimizer = Nero(reference, **options), Nero(model, **options)
    names = {param: name for name, param in model.named_parameters()}
    fully_shard(model)
    sharded = dict(model.named_parameters())
    for group in optimizer.param_groups:
        group["params"] = [sharded[names[param]] for param in group["params"]]
    train(reference, whole, steps)
    train(model, optimizer, steps)
    assert_same_bits(model, reference, "swapped:")


def grad_scaler_with_an_inf_on_one_rank():
    """Every rank skips that step."""
    model = fully_shard(nn.Linear(6, 4, bias=False))
    optimizer = Nero(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    before = model.weight.to_local().clone()
    value = float("inf") if dist.get_rank() == 0 else 1.0
    model.weight.grad = DTensor.from_local(
        torch.full_like(before, value), model.weight.device_mesh, model.weight.placements
    )
    scaler._lazy_init_scale_growth_tracker(torch.device("cpu"))
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(model.weight.to_local(), before)
    assert scaler.get_scale() == 1.0


def mixed_precision_and_offload():
    for policy in (
        {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)},
        {"offload_policy": CPUOffloadPolicy(pin_memory=False)},
    ):
        model = fully_shard(nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3)), **policy)
        optimizer = Nero(model)
        before = [p.full_tensor() for p in model.parameters()]
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(8, 6)).float().square().mean().backward()
            optimizer.step()
        for old, param in zip(before, model.parameters(), strict=True):
            new = param.full_tensor()
            assert not torch.equal(old, new)
            if new.ndim > 1:
                torch.testing.assert_close(new.norm(dim=1), torch.ones(len(new)))


def zero_redundancy():
    """Only owners build state and project, so every rank projects first."""
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    for param in model.parameters():
        dist.broadcast(param.data, 0)
    reference = copy.deepcopy(model)
    project_(model)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=Nero, fused=False)
    alone = Nero(reference.parameters(), fused=False)
    for step in range(3):
        torch.manual_seed(step)
        for p, q in zip(model.parameters(), reference.parameters(), strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        optimizer.step()
        alone.step()
    assert_same_bits(model, reference, "ZeroRedundancyOptimizer:")


def ddp():
    """Real gradients, averaged by DDP: equal on both ranks, so the weights are."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)))
    optimizer = Nero(model)
    torch.manual_seed(dist.get_rank())
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
    for param in model.parameters():
        mine = param.detach().clone()
        dist.broadcast(mine, 0)
        assert torch.equal(mine, param)


def end_to_end_gradients():
    """Each rank has half of a batch. FSDP adds gradients up in another order than one process does.

    Weights after 5 steps then differ by 6e-8, one rounding of the largest. It would be more where a
    gradient is all rounding error, since a step has the same length however short its gradient is; this
    network has no such neurons.
    """
    reference = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
    model = fully_shard(copy.deepcopy(reference))
    optimizer, alone = Nero(model), Nero(reference)
    batch = torch.randn(16, 6)
    for _ in range(5):
        optimizer.zero_grad()
        model(batch.chunk(2)[dist.get_rank()]).square().mean().backward()
        optimizer.step()
        alone.zero_grad()
        reference(batch).square().mean().backward()
        alone.step()
    for p, q in zip(reference.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(q.full_tensor(), p.detach(), rtol=0, atol=2e-7)


def pipeline_of_two_stages():
    """Each rank has an optimizer of its own stage; its weights are those of one process."""
    torch.manual_seed(0)
    layers = [nn.Linear(6, 6), nn.Linear(6, 6)]
    reference = nn.Sequential(*copy.deepcopy(layers))
    rank = dist.get_rank()
    stage = PipelineStage(layers[rank], rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=1, loss_fn=lambda y, t: (y - t).square().mean())
    optimizer, alone = Nero(layers[rank]), Nero(reference)
    x, target = torch.randn(4, 6), torch.randn(4, 6)
    for _ in range(5):
        optimizer.zero_grad()
        schedule.step(*([x] if rank == 0 else []), **({"target": target} if rank == 1 else {}))
        optimizer.step()
        alone.zero_grad()
        (reference(x) - target).square().mean().backward()
        alone.step()
    for p, q in zip(layers[rank].parameters(), reference[rank].parameters(), strict=True):
        assert torch.equal(p, q)


def compiled_step():
    """By inductor, which takes a minute for the network of the other tests."""
    reference = nn.Linear(6, 4, bias=False)
    model = fully_shard(copy.deepcopy(reference))
    whole, optimizer = Nero(reference, fused=False), Nero(model, fused=False)
    step = torch.compile(optimizer.step)
    for _ in range(3):
        grads = {"weight": torch.randn(4, 6)}
        train(reference, whole, [grads])
        model.weight.grad = sharded_grad(grads["weight"], model.weight)
        step()
    torch.testing.assert_close(
        model.weight.full_tensor(), reference.weight.detach(), rtol=0, atol=3e-7
    )


def gradients_placed_otherwise():
    """They are redistributed; a plain tensor is refused."""
    mesh = init_device_mesh("cpu", (2,))
    weight, grad = torch.randn(4, 6), torch.randn(4, 6)
    whole, cut = (
        nn.Parameter(weight.clone()),
        nn.Parameter(distribute_tensor(weight, mesh, [Shard(0)])),
    )
    optimizers = Nero([whole], fused=False), Nero([cut], fused=False)
    whole.grad, cut.grad = grad, distribute_tensor(grad, mesh, [Replicate()])
    for optimizer in optimizers:
        optimizer.step()
    assert torch.equal(cut.full_tensor(), whole)


def what_cannot_be_is_refused():
    mesh = init_device_mesh("cpu", (2,))
    summand = DTensor.from_local(torch.randn(4, 6), mesh, [Partial()])
    with pytest.raises(RuntimeError, match="Partial placement"):
        Nero([nn.Parameter(summand)])
    conv = fully_shard(nn.ConvTranspose1d(4, 6, 3, groups=2))
    with pytest.raises(RuntimeError, match=r"`weight` is a ConvTranspose with groups.*Shard\(1\)"):
        Nero(conv)
    Nero(fully_shard(nn.ConvTranspose1d(4, 8, 3, groups=2), shard_placement_fn=_on_dim_1))
    flat = nn.Parameter(torch.randn(12))
    flat._fsdp_flattened = True
    with pytest.raises(RuntimeError, match="use FSDP2"):
        Nero([flat])


MODES = [
    ranks_disagree_on_grad_is_none,
    gradients_whose_memory_lacks_the_sign,
    parameters_swapped_after_construction,
    grad_scaler_with_an_inf_on_one_rank,
    mixed_precision_and_offload,
    zero_redundancy,
    ddp,
    end_to_end_gradients,
    pipeline_of_two_stages,
    gradients_placed_otherwise,
    what_cannot_be_is_refused,
    compiled_step,
]
