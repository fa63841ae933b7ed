"""With ``norm="peak"``, the learning rate is the largest angle by which a neuron turns at a step."""

import math

import pytest
import torch
from torch import nn

from nero import Nero

NUM_STEPS, NUM_NEURONS, FAN_IN = 60, 12, 16
LR = 0.2
# A step of relative length lr turns by the arcsine of lr at most: if it points back a little.
LARGEST = math.asin(LR)
TOLERANCE = 1e-5  # of an angle between float32 vectors


def angles(old, new):
    """Angles between rows, by a formula that is exact for small ones."""
    old, new = old.double(), new.double()
    old, new = old / old.norm(dim=1, keepdim=True), new / new.norm(dim=1, keepdim=True)
    return 2 * torch.atan2((old - new).norm(dim=1), (old + new).norm(dim=1))


def adverse_gradients(seed):
    """Rows that sleep for long, wake up, jump by orders of magnitude, and are NaN for a while."""
    draw = torch.Generator().manual_seed(seed)
    for step in range(NUM_STEPS):
        grad = torch.randn(NUM_NEURONS, FAN_IN, generator=draw)
        grad *= 10 ** torch.empty(NUM_NEURONS, 1).uniform_(-6, 6, generator=draw)
        grad[torch.rand(NUM_NEURONS, generator=draw) < 0.3] = 0
        if step < NUM_STEPS - 1:
            grad[0] = 0  # wakes up at the last step
        if step < 20:
            grad[1] = math.nan
        if 30 <= step < 40:
            grad[2] = math.inf
        yield grad


def largest_turns(seed=0, **options):
    torch.manual_seed(seed)
    layer = nn.Linear(FAN_IN, NUM_NEURONS, bias=False)
    optimizer, found = Nero(layer, LR, **options), []
    for grad in adverse_gradients(seed):
        old = layer.weight.detach().clone()
        layer.weight.grad = grad
        optimizer.step()
        found.append(angles(old, layer.weight.detach()).max().item())
    return found


@pytest.mark.parametrize("direction", ["gradient", "polar"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("seed", range(5))
def test_no_neuron_turns_by_more_than_lr(seed, momentum, direction, backend):
    options = {"momentum": momentum, "direction": direction, "norm": "peak", "beta": 0.95}
    assert max(largest_turns(seed, **options)) <= LARGEST + TOLERANCE


def test_the_mean_square_turns_idle_neurons_much_further(backend):
    assert max(largest_turns(norm="rms")) > 3 * LARGEST


@pytest.mark.parametrize(("beta", "total"), [(0.99, 5.74), (0.95, 9.53)])
def test_how_far_momentum_stretches_one_gradient(beta, total, backend):
    """One gradient turns a neuron by lr * (1 + mu^2 / ((1 + mu) * (beta - mu))) in all."""
    lr, mu = 1e-4, 0.9
    assert 1 + mu**2 / ((1 + mu) * (beta - mu)) == pytest.approx(total, abs=0.01)
    layer = nn.Linear(FAN_IN, 1, bias=False)
    optimizer = Nero(layer, lr, norm="peak", beta=beta, momentum=mu)
    start, turned = layer.weight.detach().clone(), 0.0
    for step in range(400):
        old = layer.weight.detach().clone()
        grad = torch.zeros(1, FAN_IN)
        if step == 0:
            grad = torch.randn(1, FAN_IN)
            grad -= grad.mean() + (grad * start).sum() * start
        layer.weight.grad = grad
        optimizer.step()
        turned += angles(old, layer.weight.detach()).item()
    assert turned / lr == pytest.approx(total, rel=0.02)


def test_elements_move_by_no_more_than_lr_times_their_scale(backend):
    bias = nn.Parameter(torch.linspace(-1, 1, NUM_NEURONS))
    optimizer = Nero([bias], LR, norm="peak", beta=0.95, momentum=0.9)
    scale = bias.detach().abs().mean()
    for grad in adverse_gradients(0):
        old = bias.detach().clone()
        bias.grad = grad[:, 0].clone()
        optimizer.step()
        assert (bias.detach() - old).abs().max() <= LR * scale * (1 + 1e-5)


def test_an_older_checkpoint_goes_on_with_the_mean_square():
    layer = nn.Linear(FAN_IN, NUM_NEURONS)
    saved = Nero(layer, LR).state_dict()
    for group in saved["param_groups"]:
        del group["norm"]
    optimizer = Nero(layer, LR, norm="peak", beta=0.95)
    optimizer.load_state_dict(saved)
    assert {group["norm"] for group in optimizer.param_groups} == {"rms"}


def test_a_checkpoint_says_which_norm_it_holds():
    layer = nn.Linear(FAN_IN, NUM_NEURONS)
    saved = Nero(layer, LR, norm="peak", beta=0.95).state_dict()
    optimizer = Nero(layer, LR)
    optimizer.load_state_dict(saved)
    assert {group["norm"] for group in optimizer.param_groups} == {"peak"}
    optimizer.add_param_group({"params": [nn.Parameter(torch.randn(3, 4))]})
    assert optimizer.param_groups[-1]["norm"] == "peak"


def test_a_skipped_step_leaves_the_peak_alone(backend):
    layer = nn.Linear(FAN_IN, NUM_NEURONS, bias=False)
    optimizer = Nero(layer, LR, norm="peak")
    layer.weight.grad = torch.randn_like(layer.weight)
    optimizer.step()
    (state,) = optimizer.state.values()
    peak = state["exp_avg_norm"].abs().clone()
    layer.weight.grad = torch.full_like(layer.weight, math.nan)
    optimizer.step()
    assert int(state["num_skipped"]) == NUM_NEURONS
    assert torch.equal(state["exp_avg_norm"].abs(), peak)
