"""Saved on some ranks, resumed on others: weights and next steps are those of the unbroken run."""

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)

from nero import Nero
from tests.distributed.ranks import (
    OPTIONS,
    assert_same_bits,
    gradients,
    network,
    on_ranks,
    train,
)
from tests.distributed.test_same_bits import SHARDINGS

NUM_BEFORE, NUM_AFTER = 10, 10


def _alone(model):
    return model


HOW = {
    **{name: (size, shard) for name, (size, shard, *_) in SHARDINGS.items()},
    "alone": (1, _alone),
}


def _build(how):
    model = HOW[how][1](network())
    return model, Nero(model, fused=False, momentum=0.9, **OPTIONS)


def _begun(how):
    model, optimizer = _build(how)
    train(model, optimizer, gradients(network(), NUM_BEFORE + NUM_AFTER)[:NUM_BEFORE])
    return model, optimizer


def _both(model, optimizer, **options):
    state = get_state_dict(model, optimizer, options=StateDictOptions(**options))
    return {"model": state[0], "optimizer": state[1]}


def save(path, how, flat):
    model, optimizer = _begun(how)
    dcp.save(_both(model, optimizer, flatten_optimizer_state_dict=flat), checkpoint_id=path)


def resume(path, how, flat):
    model, optimizer = _build(how)
    optimizer.param_groups[0]["lr"] = 0.5  # the checkpoint knows better
    state = _both(model, optimizer, flatten_optimizer_state_dict=flat)
    dcp.load(state, checkpoint_id=path)
    _go_on(model, optimizer, state, how, flatten_optimizer_state_dict=flat)


def _go_on(model, optimizer, state, how, **options):
    """Load, take the steps that are left, and compare with the run that was not interrupted."""
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
        options=StateDictOptions(**options),
    )
    reference = network()
    steps = gradients(reference, NUM_BEFORE + NUM_AFTER)
    train(reference, Nero(reference, fused=False, momentum=0.9, **OPTIONS), steps)
    train(model, optimizer, steps[NUM_BEFORE:])
    assert_same_bits(model, reference, f"resumed on {how}:")


def save_all(path):
    save(path / "nested", "FSDP 4", flat=False)
    save(path / "flattened", "FSDP 4", flat=True)
    save(path / "with TP", "FSDP+TP 2x2", flat=False)


def resume_all(path, how):
    resume(path / "nested", how, flat=False)
    resume(path / "flattened", how, flat=True)
    resume(path / "with TP", how, flat=False)


def test_saved_at_4_ranks_resumed_at_4_2_1_and_3(tmp_path):
    on_ranks(4, save_all, tmp_path)
    for how in ("FSDP 4", "FSDP 2", "alone", "FSDP 3"):
        on_ranks(HOW[how][0], resume_all, tmp_path, how)


def test_full_state_dicts(tmp_path):
    path = tmp_path / "full.pt"
    on_ranks(2, save_full, path)
    on_ranks(3, resume_full, path)
    on_ranks(1, resume_full, path, "alone")


def save_full(path):
    model, optimizer = _begun("FSDP 2")
    state = _both(model, optimizer, full_state_dict=True, cpu_offload=True)
    if torch.distributed.get_rank() == 0:
        torch.save(state, path)


def resume_full(path, how="FSDP 3"):
    model, optimizer = _build(how)
    _go_on(model, optimizer, torch.load(path, weights_only=True), how, full_state_dict=True)
