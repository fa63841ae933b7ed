"""Averages of weights stay balanced, and gradients may come from anywhere."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from nero import Nero, Sphere, project_
from nero.diagnostics import check_balance

LARGE_EMBEDDINGS = {"role=embedding": {"constraint": Sphere(radius="sqrt_dim")}}


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.norm = nn.Embedding(11, 6), nn.LayerNorm(6)
        self.out = nn.Linear(6, 11)

    def forward(self, tokens):
        return self.out(self.norm(self.words(tokens)))


def words():
    torch.manual_seed(0)
    return Words()


TOKENS = torch.arange(11).repeat(3)


def loss_of(model, tokens=TOKENS):
    return nn.functional.cross_entropy(model(tokens), (tokens * 3 + 1) % 11)


def train(model, optimizer, num_steps=1):
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("options", "overrides"),
    [({}, ()), ({"preset": "rows"}, LARGE_EMBEDDINGS)],
    ids=["paper", "rows"],
)
def test_a_moving_average_stays_balanced_if_each_update_projects_it(options, overrides):
    class BalancedAverage(AveragedModel):
        def update_parameters(self, model):
            super().update_parameters(model)
            project_(self.module, overrides=overrides)

    model = words()
    optimizer = Nero(model, **options)
    ema = get_ema_multi_avg_fn(0.9)
    plain, balanced = (
        AveragedModel(model, multi_avg_fn=ema),
        BalancedAverage(model, multi_avg_fn=ema),
    )
    initial_loss = loss_of(model).item()
    for _ in range(60):
        train(model, optimizer)
        plain.update_parameters(model)
        balanced.update_parameters(model)
        assert check_balance(balanced.module, overrides=overrides).is_balanced
    assert not check_balance(plain.module, overrides=overrides).is_balanced
    assert loss_of(balanced).item() < initial_loss / 2


def test_an_equal_average_is_projected_once_and_may_be_frozen():
    model = words()
    optimizer, average = Nero(model), AveragedModel(model)
    for _ in range(20):
        train(model, optimizer, 5)
        average.update_parameters(model)
    weight = average.module.out.weight
    assert (weight.norm(dim=1) < 1 - 1e-4).all()
    project_(average.module.requires_grad_(False))
    assert check_balance(average.module).is_balanced


def test_functional_gradients_train_to_the_same_bits():
    model, other = words(), words()
    optimizer, functional = Nero(model, lr=0.02), Nero(other, lr=0.02)
    params = dict(other.named_parameters())

    def loss_of_params(params):
        outputs = torch.func.functional_call(other, params, TOKENS)
        return nn.functional.cross_entropy(outputs, (TOKENS * 3 + 1) % 11)

    for _ in range(10):
        train(model, optimizer)
        grads = torch.func.grad(loss_of_params)({n: p.detach() for n, p in params.items()})
        for name, param in params.items():
            param.grad = grads[name]
        functional.step()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)


def test_accumulated_gradients_need_no_division():
    # A factor of four is exact in binary, and sums of other terms have other last bits.
    whole, parts = words().double(), words().double()
    optimizers = Nero(whole), Nero(parts)
    batches = TOKENS[:32].split(8)
    for _ in range(10):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(whole, TOKENS[:32]).backward()
        for batch in batches:
            loss_of(parts, batch).backward()
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("max_norm", [1e-3, 1e3])
def test_clipped_gradients_turn_neurons_as_far(max_norm):
    """Clipped at every step to one norm, or never: both leave neurons balanced, and learn."""
    model = words()
    optimizer = Nero(model)
    before = copy.deepcopy(model)
    for _ in range(20):
        optimizer.zero_grad()
        loss_of(model).backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
    assert check_balance(model).is_balanced
    assert loss_of(model) < loss_of(before)
