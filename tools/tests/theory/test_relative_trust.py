"""Definitions 3 and 4 against closed forms and a second, plainer way to compute them."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nero
from nero_tools.theory import proposed_update, relative_trust


class Chain(nn.Module):
    """A product of numbers, each of them a layer: f = w_1 * w_2 * ... * w_L."""

    def __init__(self, *weights):
        super().__init__()
        self.layers = nn.ParameterList(torch.tensor([[w]], dtype=torch.float64) for w in weights)

    def forward(self):
        return math.prod(self.layers)


ALL_ROLES = ("neuron", "embedding", "gain", "bias", "other")


def test_a_chain_of_numbers_has_closed_forms():
    weights, steps = (2.0, -0.5, 3.0), (0.1, 0.02, -0.6)
    model = Chain(*weights)
    update = {f"layers.{i}": torch.tensor([[x]], dtype=torch.float64) for i, x in enumerate(steps)}
    trust = relative_trust(model, lambda chain: chain().sum(), update, roles=ALL_ROLES)
    ratios = [step / weight for step, weight in zip(steps, weights, strict=True)]
    for i, layer in enumerate(trust.layers):
        # The gradient of a factor is the product of the others.
        others = [r for k, r in enumerate(ratios) if k != i]
        assert layer.gradient_change == pytest.approx(abs(math.prod(1 + r for r in others) - 1))
        assert layer.weight_change == pytest.approx(abs(ratios[i]))
        assert layer.trust == pytest.approx(math.prod(1 + abs(r) for r in ratios) - 1)
        gradient = math.prod(weights) / weights[i]
        assert layer.cosine == pytest.approx(-math.copysign(1, gradient * steps[i]))
        assert layer.obeys_trust
    assert trust.obeys_trust
    assert trust.loss == pytest.approx(-3.0)


def test_a_product_that_only_grows_reaches_the_right_side():
    """Where all layers but one grow, the inequality is an equality for that one."""
    model = Chain(2.0, 5.0, 3.0)
    update = {"layers.1": torch.tensor([[0.5]]), "layers.2": torch.tensor([[0.6]])}
    update |= {"layers.0": torch.zeros(1, 1)}
    layer = relative_trust(model, lambda chain: chain().sum(), update, roles=ALL_ROLES).layers[0]
    assert layer.gradient_change == pytest.approx(layer.trust, rel=1e-12)
    assert math.isnan(layer.cosine)
    assert layer.is_stable  # it does not move


def small_problem(dtype=torch.float64):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3))
    model = model.to(dtype)
    inputs, labels = torch.randn(32, 6, dtype=dtype), torch.randint(3, (32,))
    return model, lambda net: F.cross_entropy(net(inputs), labels)


@pytest.mark.parametrize("roles", [("neuron",), ALL_ROLES])
def test_agrees_with_two_models_side_by_side(roles):
    model, loss_fn = small_problem()
    update = {name: 0.05 * torch.randn_like(p) for name, p in model.named_parameters()}
    trust = relative_trust(model, loss_fn, update, roles=roles)

    other = copy.deepcopy(model)
    moved = [n for n, p in model.named_parameters() if p.ndim == 2 or "bias" in roles]
    product = 1.0
    with torch.no_grad():
        for name, param in other.named_parameters():
            if name in moved:
                product *= 1 + (update[name].norm() / param.norm()).item()
                param.add_(update[name])
    for net in (model, other):
        loss_fn(net).backward()
    assert [layer.name for layer in trust.layers] == moved
    for layer in trust.layers:
        old, new = (net.get_parameter(layer.name).grad for net in (model, other))
        step = update[layer.name]
        assert layer.gradient_change == pytest.approx(((new - old).norm() / old.norm()).item())
        assert layer.trust == pytest.approx(product - 1)
        cosine = F.cosine_similarity(step.flatten(), -old.flatten(), dim=0)
        assert layer.cosine == pytest.approx(cosine.item())
    assert trust.loss_after == pytest.approx(loss_fn(other).item())


def test_a_gradient_step_on_a_quadratic():
    """L = 1/2 w'Hw, stepped by -eta*Hw: the relative change is ||eta*H*Hw|| / ||Hw||."""
    curvature = torch.diag(torch.tensor([1.0, 4.0, 9.0], dtype=torch.float64))
    model = nn.Linear(3, 1, bias=False).double()
    grad = model.weight.detach() @ curvature

    def loss_fn(net):
        return (net.weight @ curvature @ net.weight.T).sum() / 2

    for eta in (0.05, 0.5):
        layer = relative_trust(model, loss_fn, {"weight": -eta * grad}).layers[0]
        assert layer.gradient_change == pytest.approx(
            (eta * (grad @ curvature).norm() / grad.norm()).item()
        )
        assert layer.cosine == pytest.approx(1)
    assert relative_trust(model, loss_fn, {"weight": -0.05 * grad}).is_stable
    assert not relative_trust(model, loss_fn, {"weight": -0.5 * grad}).is_stable


def test_the_end_of_a_step_is_not_all_of_it():
    """Definition 3 calls a step stable that raises the loss: its gradient differs on the way."""
    model = nn.Linear(1, 1, bias=False).double()
    model.weight.data.zero_()

    def loss_fn(net):  # its slope is 10*sin^2(pi*w) - 1, so -1 at w = 0 and at w = 1
        w = net.weight.sum()
        return 5 * w - 10 * torch.sin(2 * math.pi * w) / (4 * math.pi) - w

    step = {"weight": torch.ones(1, 1)}
    naive = relative_trust(model, loss_fn, step)
    assert naive.is_stable
    assert naive.loss_after > naive.loss
    better = relative_trust(model, loss_fn, step, num_points=8)
    assert not better.is_stable
    assert better.layers[0].gradient_change == pytest.approx(0, abs=1e-9)
    assert better.layers[0].largest_change == pytest.approx(10)


def test_steps_that_are_stable_all_along_lower_the_loss():
    model, loss_fn = small_problem()
    loss_fn(model).backward()
    num_stable = 0
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        size = 10 ** torch.empty(1).uniform_(-2, 0.7, generator=generator).item()
        update = {}
        for name, param in model.named_parameters():
            noise = torch.randn(param.shape, generator=generator, dtype=param.dtype)
            update[name] = -size * (param.grad + 0.2 * param.grad.norm() * noise / noise.norm())
        trust = relative_trust(model, loss_fn, update, num_points=16, roles=ALL_ROLES)
        assert not trust.is_stable or trust.loss_after < trust.loss, seed
        num_stable += trust.is_stable
    assert 10 <= num_stable < 20


class TestTheModelIsLeftAlone:
    def test_not_one_bit_changes(self):
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
        x = torch.randn(16, 4)
        loss_fn = lambda net: net(x).square().mean()  # noqa: E731
        loss_fn(model).backward()
        held = loss_fn(model)  # a graph that someone still wants to go back through
        params = dict(model.named_parameters())
        state, grads = copy.deepcopy(model.state_dict()), [p.grad.clone() for p in params.values()]
        update = {name: torch.randn_like(p) for name, p in params.items()}
        random_state = torch.get_rng_state()
        relative_trust(model, loss_fn, update, num_points=3)

        assert torch.equal(torch.get_rng_state(), random_state)
        assert [*model.named_parameters()] == [*params.items()]  # the same objects
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, state[name]), name
        for param, grad in zip(params.values(), grads, strict=True):
            assert torch.equal(param.grad, grad)
        assert model.training
        held.backward()

    def test_also_when_the_loss_fails(self):
        model = nn.Linear(2, 1)
        before = copy.deepcopy(model.state_dict())

        def loss_fn(net):
            net(torch.ones(2))
            raise RuntimeError("no loss today")

        with pytest.raises(RuntimeError, match="no loss today"):
            relative_trust(model, loss_fn, {"weight": torch.ones(1, 2)})
        assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())

    def test_dropout_drops_the_same_both_times(self):
        model = nn.Sequential(nn.Linear(20, 20, bias=False), nn.Dropout(0.5))
        x = torch.randn(8, 20)
        update = {"0.weight": torch.zeros(20, 20)}
        trust = relative_trust(model, lambda net: net(x).square().mean(), update)
        assert trust.layers[0].gradient_change == 0

    def test_recurrent_and_tied_and_parametrised_layers(self):
        class Mixed(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens = nn.Embedding(11, 6)
                self.rnn = nn.LSTM(6, 6, batch_first=True)
                self.norm = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))
                self.head = nn.Linear(6, 11, bias=False)
                self.head.weight = self.tokens.weight

            def forward(self, x):
                return self.head(self.norm(self.rnn(self.tokens(x))[0]))

        torch.manual_seed(0)
        model = Mixed().double()
        x = torch.randint(11, (3, 5))
        loss_fn = lambda net: F.cross_entropy(net(x).flatten(0, 1), x.flatten())  # noqa: E731
        update = {n: 0.1 * torch.randn_like(p) for n, p in model.named_parameters()}
        trust = relative_trust(model, loss_fn, update, roles=ALL_ROLES)
        with torch.no_grad():
            for name, param in model.named_parameters():
                param.add_(update[name])
        assert trust.loss_after == pytest.approx(loss_fn(model).item(), rel=1e-12)


class TestProposedUpdate:
    @pytest.mark.parametrize(
        "make",
        [
            lambda model: nero.Nero(model),
            lambda model: torch.optim.AdamW(model.parameters(), lr=0.01),
            lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            lambda model: nero.Balanced(torch.optim.SGD(model.parameters(), lr=0.1)),
        ],
    )
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_is_what_the_step_then_does(self, make, dtype):
        model, loss_fn = small_problem(dtype)
        optimizer = make(model)
        for _ in range(3):
            optimizer.zero_grad()
            loss_fn(model).backward()
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            state = copy.deepcopy(optimizer.state_dict()["state"])
            update = proposed_update(model, optimizer)
            torch.testing.assert_close(optimizer.state_dict()["state"], state, rtol=0, atol=0)
            assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
            optimizer.step()
            for name, param in model.named_parameters():
                # In float64: the sum is exact for float32 weights, nearly so for float64 ones.
                after = (before[name].double() + update[name]).to(dtype)
                tolerance = 0.0 if dtype == torch.float32 else 1e-15
                torch.testing.assert_close(after, param.detach(), rtol=0, atol=tolerance)

    def test_names_only_what_moves(self):
        model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
        model[0].weight.requires_grad_(False)
        optimizer = nero.Nero(model)
        model(torch.randn(4, 3)).square().mean().backward()
        assert "0.weight" not in proposed_update(model, optimizer)


def test_zeros_are_infinitely_far_from_anything():
    model = nn.Linear(3, 1, bias=False).double()
    model.weight.data.zero_()
    layer = relative_trust(
        model, lambda net: net.weight.square().sum(), {"weight": torch.ones(1, 3)}
    ).layers[0]
    assert layer.weight_change == math.inf
    assert layer.trust == math.inf
    assert layer.gradient_change == math.inf  # from zero to something
    assert not layer.is_stable


def test_prints_a_table():
    model, loss_fn = small_problem()
    loss_fn(model).backward()
    update = proposed_update(model, torch.optim.SGD(model.parameters(), lr=0.1))
    printed = str(relative_trust(model, loss_fn, update))
    assert printed.splitlines()[0].split()[:3] == ["layer", "step", "trust"]
    assert "0.weight" in printed
    assert "before the step" in printed


def test_says_what_is_wrong_with_the_loss():
    model, _ = small_problem()
    update = {"2.weight": torch.zeros(5, 8)}
    with pytest.raises(ValueError, match=r"one number, but has the shape \(2, 3\)"):
        relative_trust(model, lambda net: net(torch.zeros(2, 6, dtype=torch.float64)), update)
    with pytest.raises(ValueError, match="does not depend on the model's weights"):
        relative_trust(model, lambda net: torch.tensor(1.0), update)
