"""The row of the survey that needs two processes: sharded parameters."""

import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

from nero import Nero
from tests.distributed.ranks import on_ranks


def test_dtensor_shard_0_and_shard_1():
    """A: both crash. P: Shard(0) exact, Shard(1) crashes."""
    on_ranks(2, _train_sharded_and_whole)


def _train_sharded_and_whole():
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2,))
    for dim, constraint in itertools.product((0, 1), ("balanced", "mean", "initial")):
        torch.manual_seed(0)
        weight, bias = torch.randn(7, 9), torch.randn(7)  # uneven shards
        whole = [nn.Parameter(weight.clone()), nn.Parameter(bias.clone())]
        sharded = [
            nn.Parameter(distribute_tensor(weight, mesh, [Shard(dim)])),
            nn.Parameter(distribute_tensor(bias, mesh, [Shard(0)])),
        ]
        optimizers = [
            Nero(params, constraint=constraint, fused=False) for params in (whole, sharded)
        ]
        for t in range(20):
            for p, q in zip(whole, sharded, strict=True):
                p.grad = torch.randn_like(p)
                p.grad[t % 7] *= float("nan") if t % 5 == 0 else 0.0
                q.grad = distribute_tensor(p.grad, mesh, q.placements)
            for optimizer in optimizers:
                optimizer.step()
        for p, q in zip(whole, sharded, strict=True):
            assert torch.equal(p, q.full_tensor()), f"Shard({dim}), {constraint}: rank {rank}"
        assert optimizers[0].num_skipped == optimizers[1].num_skipped > 0
