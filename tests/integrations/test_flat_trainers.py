"""Hugging Face's Trainer with ZeRO-2 and ZeRO-3: the losses of one process, and exact resume.

Its FSDP1 needs a GPU: Accelerate leaves it out on CPUs.
"""

import os
import sys

import pytest
import torch
import torch.distributed as dist

from nero.integrations.huggingface import nero_for
from tests.distributed.flat_network import ranges_of
from tests.distributed.ranks import on_ranks
from tests.integrations.tiny import gpt2, sentences

NUM_STEPS = 4


def zero(stage):
    return {
        "deepspeed": {
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": stage},
        }
    }


ENGINES = {"ZeRO-2": zero(2), "ZeRO-3": zero(3)}


def trainer_of(folder, batch_size, **options):
    from transformers import Trainer, TrainingArguments

    args = TrainingArguments(
        output_dir=folder, max_steps=NUM_STEPS, per_device_train_batch_size=batch_size, logging_steps=1,
        save_strategy="steps", save_steps=2, report_to=[], use_cpu=True, disable_tqdm=True,
        max_grad_norm=0.0, learning_rate=0.02, train_sampling_strategy="sequential", **options,
    )  # fmt: skip
    how = nero_for(args, preset="rows", fused=False)
    return Trainer(gpt2(), args, train_dataset=sentences(), optimizer_cls_and_kwargs=how)


def logged(trainer):
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_losses_are_those_of_one_process(engine, tmp_path):
    alone = trainer_of(str(tmp_path / "alone"), 8)
    alone.train()
    on_ranks(2, train_on_rank, engine, str(tmp_path), logged(alone))


def train_on_rank(engine, folder, losses):
    rank, size = dist.get_rank(), dist.get_world_size()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"LOCAL_WORLD_SIZE": str(size), "ACCELERATE_USE_CPU": "true"}
    import deepspeed  # noqa: F401

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    first = trainer_of(folder, 4, **ENGINES[engine])
    first.train()
    optimizer = first.optimizer
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    assert ranges_of(optimizer), "the engine has not flattened anything"
    if rank == 0:
        print(f"{engine}: losses {logged(first)}, of one process {losses}")
    torch.testing.assert_close(logged(first), losses, rtol=1e-3, atol=0)
    again = trainer_of(folder, 4, **ENGINES[engine])
    again.train(resume_from_checkpoint=f"{folder}/checkpoint-2")
    assert again.state.global_step == NUM_STEPS
    assert logged(again)[-2:] == logged(first)[-2:]
