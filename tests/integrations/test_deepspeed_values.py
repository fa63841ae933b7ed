"""Full values and gradients under the real DeepSpeed, for a check of a step: those of one process."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

from nero.diagnostics.full_values import full_shapes, full_values
from tests.distributed.ranks import on_ranks


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3, bias=False))


def batch(rank):
    return torch.randn(8, 6, generator=torch.Generator().manual_seed(rank))


def test_values_and_gradients_under_every_stage():
    on_ranks(2, _every_stage)


def _every_stage():
    rank = dist.get_rank()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    import deepspeed

    # It would compile an operator for shared memory, and a run that is killed meanwhile leaves a lock.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    alone = network()
    for each in range(2):
        (alone(batch(each)).square().mean() / 2).backward()
    wanted = dict(alone.named_parameters())
    for stage in (1, 2, 3):
        config = {
            "train_micro_batch_size_per_gpu": 8,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": stage},
        }
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
        engine.backward(engine(batch(rank)).square().mean())
        with full_shapes(engine):
            shapes = {n: p.shape for n, p in engine.module.named_parameters()}
        assert shapes == {n: p.shape for n, p in wanted.items()}, stage
        with full_values(engine, with_grads=True) as values:
            found = dict(values)
        assert found.keys() == wanted.keys()
        for name, full in found.items():
            assert torch.equal(full.value, wanted[name]), (stage, name)
            # DeepSpeed adds up what the ranks have in another order.
            torch.testing.assert_close(full.grad, wanted[name].grad, rtol=1e-5, atol=1e-7)
            assert full.peers == (0, 1)
            assert full.is_shared
