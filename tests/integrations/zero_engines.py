"""The real DeepSpeed on CPUs: how engines are made."""

import os
import sys

import torch
import torch.distributed as dist


def prepared():
    rank, size = dist.get_rank(), dist.get_world_size()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    import deepspeed

    # It would compile an operator for shared memory, and a run that is killed meanwhile leaves a lock.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    return deepspeed


def started(model, optimizer, stage, config=(), zero=()):
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**9,
        "zero_optimization": {"stage": stage, **dict(zero)},
        **dict(config),
    }
    return prepared().initialize(model=model, optimizer=optimizer, config=config)[:2]


def dtype_of(config):
    return torch.bfloat16 if "bf16" in config else None
