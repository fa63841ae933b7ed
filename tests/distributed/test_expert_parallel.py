"""Experts sharded over an expert-parallel mesh are bit-identical to one process, alone and under FSDP2."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from nero import Nero
from tests.distributed.ranks import assert_same_bits, gradients, on_ranks, train_and_count

NUM_STEPS = 5  # gradients that are not finite at the fourth
OPTIONS = {"overrides": {"experts.*": {"role": "neuron", "neuron_dims": (0, 1)}}, "fused": False}


class Experts(nn.Module):
    def __init__(self, num_experts):
        super().__init__()
        self.up = nn.Parameter(torch.randn(num_experts, 6, 4))
        self.down = nn.Parameter(torch.randn(num_experts, 4, 6))


class Block(nn.Module):
    def __init__(self, num_experts):
        super().__init__()
        self.tokens = nn.Embedding(7, 4)
        self.router = nn.Linear(4, num_experts)
        self.norm = nn.LayerNorm(4)
        self.experts = Experts(num_experts)
        self.head = nn.Linear(4, 7)


def block(num_experts):
    torch.manual_seed(0)
    return Block(num_experts)


def shard_experts_(model, mesh):
    """As torch's and torchtitan's expert parallelism do: every rank of the mesh has experts of its own."""
    for name, param in list(model.experts.named_parameters()):
        setattr(model.experts, name, nn.Parameter(distribute_tensor(param.data, mesh, [Shard(0)])))


def _ep(model):
    shard_experts_(model, init_device_mesh("cpu", (4,), mesh_dim_names=("ep",)))
    return model


def _ep_of_a_grid(model):
    """Two copies of the experts; all else is replicated."""
    shard_experts_(model, init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "ep"))["ep"])
    return model


def _fsdp_ep(model):
    """FSDP shards all else over four ranks, and each rank's experts over the two of another mesh dim."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "ep"))
    shard_experts_(model, mesh["ep"])
    fully_shard(model.experts, mesh=mesh["fsdp"])
    return fully_shard(model, mesh=init_device_mesh("cpu", (4,)))


def _fsdp_on_dim_1_ep(model):
    """With more ranks than experts, FSDP takes the neurons of each expert apart."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "ep"))
    shard_experts_(model, mesh["ep"])
    fully_shard(model.experts, mesh=mesh["fsdp"], shard_placement_fn=lambda _: Shard(1))
    return fully_shard(model, mesh=init_device_mesh("cpu", (4,)))


def _fsdp_on_dim_2_ep(model):
    """FSDP cuts every neuron."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "ep"))
    shard_experts_(model, mesh["ep"])
    fully_shard(model.experts, mesh=mesh["fsdp"], shard_placement_fn=lambda _: Shard(2))
    return fully_shard(model, mesh=init_device_mesh("cpu", (4,)))


# How; collectives of a step with preset rows, and with polar.
WAYS = {
    "EP 4": (_ep, 0, 0),
    "EP 2, two copies": (_ep_of_a_grid, 0, 0),
    "FSDP+EP 2x2": (_fsdp_ep, 0, 2),
    "FSDP on dim 1 + EP 2x2": (_fsdp_on_dim_1_ep, 0, 4),
    "FSDP on dim 2 + EP 2x2": (_fsdp_on_dim_2_ep, 1, 5),
}


# Experts that four ranks share equally, and that they do not: with three, the last rank has none.
@pytest.mark.parametrize("num_experts", [pytest.param(8, marks=pytest.mark.slow), 3])
def test_every_sharding_of_experts_gives_the_bits_of_one_process(num_experts):
    on_ranks(4, _compare, num_experts)


def _compare(num_experts):
    for preset in ("rows", "polar"):
        options = {**OPTIONS, "preset": preset}
        reference = block(num_experts)
        steps = gradients(reference, NUM_STEPS)
        for name, (shard, *counts) in WAYS.items():
            whole = block(num_experts)
            alone = Nero(whole, **options)
            train_and_count(whole, alone, steps)
            model = shard(block(num_experts))
            assert isinstance(model.experts.up, DTensor)
            optimizer = Nero(model, **options)
            num = counts[preset == "polar"]
            counted = train_and_count(model, optimizer, steps)
            assert_same_bits(model, whole, f"{name}, {preset}:")
            assert counted == [num] * 2, (name, preset, counted)
            assert optimizer.num_skipped == alone.num_skipped > 0, name
