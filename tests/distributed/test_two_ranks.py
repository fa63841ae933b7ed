"""The least that two ranks must agree on, in one short run: bits, counts, and who has a gradient."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from nero import Nero
from tests.distributed.ranks import on_ranks

# A weight of which ranks share neurons, one of which each has its own, one that both hold, a grouped
# ConvTranspose that is cut on a fan-in dim, and a bias.
SHAPES = [(4, 6), (4, 6), (4, 6), (4, 2, 6), (6,)]
PLACEMENTS = [Shard(1), Shard(0), Replicate(), Shard(2), Shard(0)]
GROUPS = [{}, {}, {}, {"neuron_dims": (1,), "num_groups": 2}, {"role": "bias"}]


def test_two_ranks_are_one():
    on_ranks(2, _two_ranks)


def _two_ranks():
    for fused in (False, None):
        for constraint in ("balanced", "initial"):
            _compare(fused=fused, constraint=constraint)


def _compare(**options):
    mesh = init_device_mesh("cpu", (2,))
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator) for shape in SHAPES]
    alone = [nn.Parameter(weight.clone()) for weight in start]
    cut = [
        nn.Parameter(distribute_tensor(weight, mesh, [placement]))
        for weight, placement in zip(start, PLACEMENTS, strict=True)
    ]
    optimizers = [
        Nero([{"params": [p], **g} for p, g in zip(params, GROUPS, strict=True)], **options)
        for params in (alone, cut)
    ]
    for step in range(4):
        for i, (whole, mine) in enumerate(zip(alone, cut, strict=True)):
            grad = torch.randn(whole.shape, generator=generator)
            grad[step % len(grad)] = torch.nan if step == 2 else 0.0
            whole.grad = grad
            mine.grad = distribute_tensor(grad.clone(), mesh, [PLACEMENTS[i]])
        if step == 1:  # nobody has a gradient of what ranks share: no trace
            alone[0].grad = cut[0].grad = None
        for optimizer in optimizers:
            optimizer.step()
    for whole, mine in zip(alone, cut, strict=True):
        # The kernel sums rows in float32, and columns that ranks share in float64.
        tolerance = 0.0 if options["fused"] is False else 1e-6
        torch.testing.assert_close(mine.full_tensor(), whole.detach(), rtol=0, atol=tolerance)
    # Rows, rows, rows, 2 of 4 neurons of every group: a NaN in dim 0 is in one of them all; one element.
    assert [optimizer.num_skipped for optimizer in optimizers] == [1 + 1 + 1 + 2 + 1] * 2
    steps = [int(optimizers[1].state[mine]["step"]) for mine in cut]
    assert steps == [3, 4, 4, 4, 4], dist.get_rank()
