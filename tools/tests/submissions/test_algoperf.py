"""The submission to AlgoPerf: its five functions on a tiny workload, and its loss on two ranks.

AlgoPerf pins another torch, so a stand-in has what the submission reads of it.
"""

import copy
import enum
import importlib.util
import itertools
import sys
import types
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import nero
from tests.distributed.ranks import on_ranks

FOLDER = Path(__file__).parents[2] / "submissions" / "algoperf" / "nero_polar"
NUM_STEPS = 300


class ForwardPassMode(enum.Enum):
    TRAIN = 0


class Tiny:
    """A workload: tokens, and the next one to predict."""

    step_hint = NUM_STEPS

    def model_fn(
        self, *, params, augmented_and_preprocessed_input_batch, mode, update_batch_norm, **_
    ):
        assert mode is ForwardPassMode.TRAIN
        assert update_batch_norm
        return params(augmented_and_preprocessed_input_batch["inputs"]), None

    def loss_fn(self, *, label_batch, logits_batch, mask_batch):
        losses = F.cross_entropy(logits_batch, label_batch, reduction="none") * mask_batch
        return {"summed": losses.sum(), "n_valid_examples": mask_batch.sum()}


def load():
    """Import the submission with a stand-in for `algoperf.spec`."""
    spec = types.ModuleType("algoperf.spec")
    spec.__getattr__ = lambda name: object  # what annotations name
    spec.ForwardPassMode = ForwardPassMode
    algoperf = types.ModuleType("algoperf")
    algoperf.spec = spec
    before = {name: sys.modules.get(name) for name in ("algoperf", "algoperf.spec")}
    sys.modules |= {"algoperf": algoperf, "algoperf.spec": spec}
    try:
        found = importlib.util.spec_from_file_location("submission", FOLDER / "submission.py")
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
    finally:
        for name, was in before.items():
            sys.modules.pop(name) if was is None else sys.modules.update({name: was})
    return module


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(11, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 11))


def batch_of_tokens():
    inputs = torch.arange(11)
    return {"inputs": inputs, "targets": (inputs * 3 + 1) % 11, "weights": (inputs < 9).float()}


def update(submission, workload, model, batch, state, step):
    state, after, model_state = submission.update_params(
        *(workload, model, None, None, None, batch, None, state, [], step, None), train_state={}
    )
    assert after is model
    assert model_state is None
    return state


def test_five_functions_train_a_tiny_workload():
    submission, workload, model, batch = load(), Tiny(), network(), batch_of_tokens()
    queue = itertools.repeat(batch)
    state = submission.init_optimizer_state(workload, model, None, None, None)
    losses = []
    for step in range(NUM_STEPS + 2):  # the budget may allow more steps than the hint
        selected = submission.data_selection(workload, queue, state, model, None, None, step, None)
        state = update(submission, workload, model, selected, state, step)
        logits = model(selected["inputs"])
        loss = workload.loss_fn(
            label_batch=batch["targets"], logits_batch=logits, mask_batch=batch["weights"]
        )
        losses.append(loss["summed"].item() / 9)
        if step == NUM_STEPS - 1:
            weights = [p.clone() for p in model.parameters()]
    assert state["optimizer"].defaults["preset"] == "polar"
    assert state["optimizer"].param_groups[0]["initial_lr"] == 0.03
    assert losses[-1] < 0.5 * losses[0]
    for now, then in zip(model.parameters(), weights, strict=True):
        assert torch.equal(now, then)  # the schedule has ended
    evaluated = submission.prepare_for_eval(
        *(workload, model, None, None, None, None, state, [], step, None)
    )
    assert evaluated == (state, model, None)
    assert all(
        bool(nero.functional.is_balanced(model[i].weight, fan_in_dims=(1,)).all()) for i in (1, 3)
    )


def test_a_run_restored_by_the_harness_continues_bit_for_bit():
    submission, workload, batch = load(), Tiny(), batch_of_tokens()
    model, state = network(), {}
    for step in range(6):
        if step == 3:
            saved = copy.deepcopy(
                (model.state_dict(), {name: it.state_dict() for name, it in state.items()})
            )
        state = update(submission, workload, model, batch, state, step)
    resumed = network()
    resumed.load_state_dict(saved[0])
    restored = saved[1]  # AlgoPerf loads nothing into a state that init_optimizer_state left empty
    for step in range(3, 6):
        restored = update(submission, workload, resumed, batch, restored, step)
    for ours, theirs in zip(resumed.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


class Tied(nn.Module):
    """Computes logits with its embedding, as the Transformer of wmt does."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.hidden = nn.Linear(16, 16)

    def forward(self, tokens):
        return self.hidden(self.embedding(tokens)).relu() @ self.embedding.weight.T


def test_the_first_batch_shows_an_output_layer_that_is_an_embedding():
    submission, model = load(), Tied()
    state = update(submission, Tiny(), model, batch_of_tokens(), {}, 0)
    (group,) = [
        group
        for group in state["optimizer"].param_groups
        if any(param is model.embedding.weight for param in group["params"])
    ]
    assert (group["role"], group["direction"]) == ("neuron", "gradient")


def test_batch_sizes():
    sizes = load().get_batch_size
    assert sizes("wmt") == sizes("wmt_post_ln") == 128
    assert (sizes("imagenet_resnet"), sizes("imagenet_resnet_silu")) == (1024, 512)
    with pytest.raises(ValueError, match=r"must be one of criteo1tb, .*, not 'tictactoe'"):
        sizes("tictactoe")


def _check_gradient_of_mean():
    """Ranks have different numbers of valid examples; DDP averages their gradients."""
    weight = torch.ones((), requires_grad=True)
    examples = torch.tensor([1.0, 2.0, 6.0]) if dist.get_rank() else torch.tensor([3.0])
    load().mean_loss((weight * examples).sum(), torch.tensor(len(examples))).backward()
    grad = weight.grad.clone()
    dist.all_reduce(grad)
    assert (grad / 2).item() == pytest.approx(3.0)


def test_the_loss_of_ranks_is_the_mean_over_all_examples():
    on_ranks(2, _check_gradient_of_mean)
