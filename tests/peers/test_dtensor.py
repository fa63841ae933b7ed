"""The row of the survey that needs two processes: sharded parameters."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

from nero import Nero

WORLD_SIZE = 2


def test_dtensor_shard_0_and_shard_1():
    """A: both crash. P: Shard(0) exact, Shard(1) crashes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(_train_sharded_and_whole, args=(port,), nprocs=WORLD_SIZE)


def _train_sharded_and_whole(rank: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD_SIZE)
    mesh = init_device_mesh("cpu", (WORLD_SIZE,))
    for dim in (0, 1):
        torch.manual_seed(0)
        weight, bias = torch.randn(6, 8), torch.randn(6)
        whole = [nn.Parameter(weight.clone()), nn.Parameter(bias.clone())]
        sharded = [
            nn.Parameter(distribute_tensor(weight, mesh, [Shard(dim)])),
            nn.Parameter(distribute_tensor(bias, mesh, [Shard(0)])),
        ]
        optimizers = Nero(whole), Nero(sharded)
        for _ in range(20):
            for p, q in zip(whole, sharded, strict=True):
                p.grad = torch.randn_like(p)
                q.grad = distribute_tensor(p.grad, mesh, q.placements)
            for optimizer in optimizers:
                optimizer.step()
        for p, q in zip(whole, sharded, strict=True):
            assert torch.equal(p, q.full_tensor()), f"Shard({dim}) differs on rank {rank}"
    dist.destroy_process_group()
