"""The real Accelerate: one process, and two that share the batch or the parameters."""

import os

import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, TensorDataset

from nero import Nero
from tests.distributed.ranks import on_ranks
from tests.integrations.tiny import (
    assert_same_bits,
    bare_run,
    described,
    examples,
    network,
    neurons,
)


def new_accelerator(**options):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState, PartialState

    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    return Accelerator(cpu=True, **options)


def prepared(accelerator):
    model = network()
    loader = DataLoader(TensorDataset(*examples()), batch_size=4)
    return accelerator.prepare(model, Nero(model, lr=0.02), loader)


def train(accelerator, model, optimizer, loader, num_epochs):
    losses = []
    for _ in range(num_epochs):
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()  # before the backward pass it would empty what was accumulated
                losses.append(loss.item())
    return losses


def test_trains_resumes_to_the_bit_and_equals_the_bare_loop(tmp_path):
    accelerator = new_accelerator()
    model, optimizer, loader = prepared(accelerator)
    assert type(optimizer.optimizer) is Nero
    assert neurons(optimizer, model) == described(model)
    losses = train(accelerator, model, optimizer, loader, 1)
    accelerator.save_state(str(tmp_path))
    losses += train(accelerator, model, optimizer, loader, 1)

    other = new_accelerator()
    resumed, its_optimizer, its_loader = prepared(other)
    other.load_state(str(tmp_path))
    assert train(other, resumed, its_optimizer, its_loader, 1) == losses[4:]
    assert_same_bits(resumed, model, its_optimizer.optimizer, optimizer.optimizer)

    assert losses == bare_run(2, 4, max_norm=1.0)[1]


def test_accumulated_gradients_equal_the_larger_batch():
    accelerator = new_accelerator(gradient_accumulation_steps=2)
    model, optimizer, loader = prepared(accelerator)
    train(accelerator, model, optimizer, loader, 1)
    whole, _ = bare_run(1, 8, max_norm=1.0)
    for p, q in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(p, q)  # sums of other terms, so other last bits


@pytest.mark.parametrize("sharded", [False, True], ids=["ddp", "fsdp2"])
def test_two_processes_equal_one_and_resume(sharded, tmp_path):
    on_ranks(2, train_on_rank, sharded, str(tmp_path))


def train_on_rank(sharded, folder):
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    accelerator = on_two_ranks(sharded)
    model, optimizer, loader = prepared(accelerator)
    assert neurons(optimizer, model) == described(model)
    assert all(isinstance(param, DTensor) == sharded for param in model.parameters())
    losses = train(accelerator, model, optimizer, loader, 1)
    # `prepare` has put sharded parameters into the param groups: no state is left of those before.
    assert {*optimizer.optimizer.state} == {*model.parameters()}
    accelerator.save_state(folder)
    losses += train(accelerator, model, optimizer, loader, 1)

    other = on_two_ranks(sharded)
    resumed, its_optimizer, its_loader = prepared(other)
    other.load_state(folder)
    assert train(other, resumed, its_optimizer, its_loader, 1) == losses[2:]
    assert_same_bits(resumed, model, its_optimizer.optimizer, optimizer.optimizer)

    # Each rank had half of a batch of eight, in turn.
    single, _ = bare_run(2, 8, max_norm=1.0)
    for p, q in zip(model.parameters(), single.parameters(), strict=True):
        whole = p.full_tensor() if sharded else p
        torch.testing.assert_close(whole, q)  # sums of other terms, so other last bits


def on_two_ranks(sharded):
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    accelerator = new_accelerator()
    assert accelerator.num_processes == 2
    if sharded:
        # Accelerate switches FSDP2 on for accelerators alone, but all that it then does works on CPUs.
        for state in (accelerator.state, PartialState()):
            state.distributed_type = DistributedType.FSDP
        accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    return accelerator
