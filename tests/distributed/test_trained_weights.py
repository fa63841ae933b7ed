"""Each rank judges the rows that it holds."""

import warnings

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from nero import Nero
from tests.distributed.ranks import on_ranks

# Not noticed: neurons that are cut between ranks.
PLACEMENTS = [(Shard(0), True), (Replicate(), True), (Shard(1), False)]


def test_sharded_weights_are_noticed_before_and_after_construction():
    on_ranks(2, _notice)


def _notice():
    mesh = init_device_mesh("cpu", (2,))
    generator = torch.Generator().manual_seed(0)
    fresh = [torch.randn(64, 48, generator=generator) for _ in range(3)]
    # Rows of unequal length around one direction, as training leaves them.
    trained = [weight * torch.tensor([0.5, 2.0] * 32)[:, None] + 0.5 for weight in fresh]
    for placement, expected in PLACEMENTS:
        cut = [[distribute_tensor(w, mesh, [placement]) for w in each] for each in (fresh, trained)]
        params = [nn.Parameter(weight.clone()) for weight in cut[1]]
        assert is_noticed(Nero, group_of(params)) is expected, placement

        params = [nn.Parameter(weight.clone()) for weight in cut[0]]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer = Nero(group_of(params))
        for param in params:
            param.grad = torch.ones_like(param)
        assert not is_noticed(optimizer.step)
        with torch.no_grad():
            for param, weight in zip(params, cut[1], strict=True):
                param.copy_(weight)
        assert is_noticed(optimizer.step) is expected, placement
        assert not is_noticed(optimizer.step)


def group_of(params):
    return [{"params": params, "neuron_dims": (0,)}]


def is_noticed(call, *args):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args)
    return any("look pretrained" in str(each.message) for each in caught)
