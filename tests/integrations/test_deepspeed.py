"""The real DeepSpeed on two ranks: ZeRO is refused by name, DeepSpeed without it works."""

import copy
import os
import sys
from itertools import product

import pytest
import torch
import torch.distributed as dist
from torch import nn

from nero import Nero, annotate
from tests.distributed.ranks import on_ranks

BFLOAT16 = {"bf16": {"enabled": True}}
ENGINES = {
    "ZeRO-1": ("DeepSpeedZeroOptimizer", 1, {}),
    "ZeRO-2": ("DeepSpeedZeroOptimizer", 2, {}),
    "ZeRO-2 in bfloat16": ("DeepSpeedZeroOptimizer", 2, BFLOAT16),
    "ZeRO-3": ("DeepSpeedZeroOptimizer_Stage3", 3, {}),
    "BF16_Optimizer": ("BF16_Optimizer", 1, BFLOAT16 | {"data_types": {"grad_accum_dtype": "fp32"}}),
}  # fmt: skip
ARRIVALS = {"model": Nero, "list": lambda model: Nero([*annotate(model).parameters()])}
REFUSED = r"DeepSpeed ZeRO or FSDP1 .* in the place of .*use FSDP2"


def test_zero_is_refused_by_name(tmp_path):
    """All engines on one pair of ranks: DeepSpeed takes ten seconds to import what it needs."""
    on_ranks(2, zero_on_rank, str(tmp_path))


def zero_on_rank(folder):
    for (wrapper, stage, config), arrival in product(ENGINES.values(), ARRIVALS.values()):
        model = network()
        engine, optimizer = started(model, arrival(model), stage, config)
        assert type(optimizer).__name__ == wrapper
        if stage < 3:  # whose groups are empty except in a step
            with pytest.raises(RuntimeError, match=REFUSED):
                engine.save_checkpoint(folder)
            with pytest.raises(RuntimeError, match=REFUSED):
                optimizer.optimizer.load_state_dict(arrival(network()).state_dict())
        with pytest.raises(RuntimeError, match=REFUSED):
            train(engine, num_steps=1)


@pytest.mark.parametrize("config", [{}, BFLOAT16], ids=["float32", "bfloat16"])
def test_without_zero_it_trains(config):
    on_ranks(2, train_on_rank, config)


def train_on_rank(config):
    """In bfloat16, parameters in float32 are swapped in, each in the shape of its own."""
    for arrival in ARRIVALS.values():
        model = network()
        engine, optimizer = started(model, arrival(model), 0, config)
        before = copy.deepcopy(model.state_dict())
        train(engine, num_steps=3)
        assert all(not torch.equal(v, before[n]) for n, v in model.state_dict().items())
        client = getattr(optimizer, "optimizer", optimizer)
        (layers,) = [group["params"] for group in client.param_groups if group["role"] == "neuron"]
        for weight in layers:
            torch.testing.assert_close(weight.norm(dim=1), torch.ones(len(weight)))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.LayerNorm(20), nn.ReLU(), nn.Linear(20, 2))


def started(model, optimizer, stage, config):
    rank, size = dist.get_rank(), dist.get_world_size()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    import deepspeed

    # It would compile an operator for shared memory, and a run that is killed meanwhile leaves a lock.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": stage},
        **config,
    }
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[:2]


def train(engine, num_steps):
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(num_steps):
        inputs = torch.randn(8, 6, generator=generator).to(next(engine.parameters()).dtype)
        engine.backward(engine(inputs).float().square().mean())
        engine.step()
