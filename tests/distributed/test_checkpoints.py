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

NUM_BEFORE, NUM_AFTER = 5, 5  # gradients that are not finite at the fourth of each
OWN = {
    "nested": {"momentum": 0.9, "momentum_dtype": "bfloat16"},
    "flattened": {"momentum": 0.9, "direction": "polar"},
    "with TP": {"momentum": 0.9, "direction": "polar"},
}


def _alone(model):
    return model


HOW = {
    **{name: (size, shard) for name, (size, shard, *_) in SHARDINGS.items()},
    "alone": (1, _alone),
}


def _nero(model, what):
    return Nero(model, fused=False, **OWN[what], **OPTIONS)


def _build(how, what):
    model = HOW[how][1](network())
    return model, _nero(model, what)


def _begun(how, what):
    model, optimizer = _build(how, what)
    train(model, optimizer, gradients(network(), NUM_BEFORE + NUM_AFTER)[:NUM_BEFORE])
    return model, optimizer


def _both(model, optimizer, **options):
    state = get_state_dict(model, optimizer, options=StateDictOptions(**options))
    return {"model": state[0], "optimizer": state[1]}


def save(path, how, what):
    model, optimizer = _begun(how, what)
    state = _both(model, optimizer, flatten_optimizer_state_dict=what == "flattened")
    dcp.save(state, checkpoint_id=path / what)


def resume(path, how, what):
    model, optimizer = _build(how, what)
    optimizer.param_groups[0]["lr"] = 0.5  # the checkpoint knows better
    options = {"flatten_optimizer_state_dict": what == "flattened"}
    state = _both(model, optimizer, **options)
    dcp.load(state, checkpoint_id=path / what)
    _go_on(model, optimizer, state, how, what, **options)


def _go_on(model, optimizer, state, how, what, **options):
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
    train(reference, _nero(reference, what), steps)
    train(model, optimizer, steps[NUM_BEFORE:])
    assert_same_bits(model, reference, f"{what}, resumed on {how}:")


def save_all(path):
    save(path, "FSDP 4", "nested")
    save(path, "FSDP 4", "flattened")
    save(path, "FSDP+TP 2x2", "with TP")


def resume_all(path, how):
    for what in OWN:
        resume(path, how, what)


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
    model, optimizer = _begun("FSDP 2", "nested")
    state = _both(model, optimizer, full_state_dict=True, cpu_offload=True)
    if torch.distributed.get_rank() == 0:
        torch.save(state, path)


def resume_full(path, how="FSDP 3"):
    model, optimizer = _build(how, "nested")
    state = torch.load(path, weights_only=True)
    _go_on(model, optimizer, state, how, "nested", full_state_dict=True)
