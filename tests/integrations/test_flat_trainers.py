"""Hugging Face's Trainer with ZeRO-2, ZeRO-3 and FSDP1: the losses of one process, and exact resume."""

import os
import warnings

import pytest
import torch
import torch.distributed as dist

from nero.integrations.huggingface import nero_for
from tests.distributed.flat_network import ranges_of
from tests.distributed.ranks import on_ranks
from tests.integrations.tiny import gpt2, sentences
from tests.integrations.zero_engines import prepared

NUM_STEPS = 4


def zero(stage):
    return {
        "deepspeed": {
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": 0.0,  # Accelerate clips at 1 by default, whatever max_grad_norm is
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": stage},
        }
    }


FSDP1 = {
    "fsdp": True,
    "fsdp_config": {
        "version": 1,
        "transformer_layer_cls_to_wrap": ["GPT2Block"],
        "state_dict_type": "SHARDED_STATE_DICT",  # on CPUs, FULL_STATE_DICT crashes, with AdamW too
        "sync_module_states": "false",  # Accelerate refuses this one on CPUs
    },
}
ENGINES = {"ZeRO-2": zero(2), "ZeRO-3": zero(3), "FSDP1": FSDP1}


def trainer_of(folder, batch_size, **options):
    from transformers import Trainer, TrainingArguments

    args = TrainingArguments(
        output_dir=folder, max_steps=NUM_STEPS, per_device_train_batch_size=batch_size, logging_steps=1,
        save_strategy="steps", save_steps=2, report_to=[], disable_tqdm=True, max_grad_norm=0.0,
        learning_rate=0.02, train_sampling_strategy="sequential", dataloader_pin_memory=False, **options,
    )  # fmt: skip
    how = nero_for(args, fused=False)
    return Trainer(gpt2(), args, train_dataset=sentences(), optimizer_cls_and_kwargs=how)


def logged(trainer):
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_losses_are_those_of_one_process(engine, tmp_path):
    alone = trainer_of(str(tmp_path / "alone"), 8, use_cpu=True)
    alone.train()
    on_ranks(2, train_on_rank, engine, str(tmp_path / engine), logged(alone))


def train_on_rank(engine, folder, losses):
    pretend_that_cpus_are_gpus()
    with warnings.catch_warnings(action="ignore"):
        trains_and_resumes(engine, folder, losses)


def pretend_that_cpus_are_gpus():
    """Where ``use_cpu`` is set, Accelerate ignores ``deepspeed``, and uses DDP."""
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    prepared()
    size = str(dist.get_world_size())
    os.environ |= {"LOCAL_WORLD_SIZE": size, "ACCELERATE_TORCH_DEVICE": "cpu"}
    PartialState._prepare_backend = lambda *_: ("gloo", DistributedType.MULTI_GPU)


def trains_and_resumes(engine, folder, losses):
    first = trainer_of(folder, 4, **ENGINES[engine])
    first.train()
    optimizer = first.optimizer
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    assert ranges_of(optimizer), f"{engine} has not flattened anything"
    if dist.get_rank() == 0:
        print(f"{engine}: losses {logged(first)}, of one process {losses}")
    # Ranks add up gradients in another order.
    torch.testing.assert_close(logged(first), losses, rtol=1e-5, atol=0)
    again = trainer_of(folder, 4, **ENGINES[engine])
    again.train(resume_from_checkpoint=f"{folder}/checkpoint-2")
    assert again.state.global_step == NUM_STEPS
    assert logged(again) == logged(first)
