"""Checkpoints across every way of building an optimizer: what resumes differently says so.

A run is saved by an optimizer that was built one way, and resumed by one that was built another way. Either
the resumed run is bit-identical to the unbroken one, or loading or its first steps raised an error or a
warning. Where layouts are guessed, a warning when the optimizer was built counts, too.
"""

import itertools
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear

import nero
from nero import LayoutError, Nero

TOKENS = torch.randint(0, 24, (4, 6), generator=torch.Generator().manual_seed(0))


class InOut(nn.Module):
    """A layer that stores (in, out), which nobody registered."""

    def __init__(self, num_in, num_out):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(num_in, num_out))

    def forward(self, inputs):
        return inputs @ self.kernel


class Registered(nn.Module):
    """Layers that modules tell all about: nobody has to guess."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(24, 16)
        self.hidden = nn.Linear(16, 32)
        self.norm = nn.LayerNorm(32)
        self.last = nn.Linear(32, 24)

    def forward(self, tokens):
        return self.last(self.norm(self.hidden(self.tokens(tokens)).relu()))


class Odd(nn.Module):
    """An embedding that is the output layer, too, positions, a norm, and a layer that nobody registered."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(24, 16)
        self.pos_embed = nn.Parameter(torch.randn(1, 6, 16))
        self.odd = InOut(16, 32)
        self.hidden = nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)
        self.last = nn.Linear(32, 16)

    def forward(self, tokens):
        stream = self.tokens(tokens) + self.pos_embed
        stream = self.last(self.norm(self.hidden(self.odd(stream)).relu())) + stream
        return linear(stream, self.tokens.weight)


def annotated(model, **options):
    return Nero([*nero.annotate(model, example=TOKENS).parameters()], **options)


ARRIVALS = {
    "model": Nero,
    "example": lambda model, **options: Nero(model, example=TOKENS, **options),
    "parameters()": lambda model, **options: Nero(model.parameters(), **options),
    "list": lambda model, **options: Nero([*model.parameters()], **options),
    "named list": lambda model, **options: Nero([*model.named_parameters()], **options),
    "groups": lambda model, **options: Nero(nero.param_groups(model), **options),
    "annotated": annotated,
    "two groups": lambda model, **options: Nero(
        [
            {"params": model.tokens.parameters()},
            {"params": [p for p in model.parameters() if p is not model.tokens.weight]},
        ],
        **options,
    ),
}
OPTIONS = {
    "paper": {},
    "rows": {"preset": "rows"},
    "polar": {"preset": "polar"},
    "bfloat16 momentum": {"preset": "rows", "momentum_dtype": "bfloat16"},
    "initial": {"preset": "polar", "constraint": "initial", "lr": 0.005},
    "norm": {"constraint": "norm", "momentum": 0.5, "direction": "polar"},
}


UNINFORMED = {"list", "named list", "two groups"}
"""Arrivals that know nothing of modules, and say so when an optimizer is built."""


def build(network):
    torch.manual_seed(0)
    return network()


def train(model, optimizer, num_steps):
    for _ in range(num_steps):
        optimizer.zero_grad()
        cross_entropy(model(TOKENS).flatten(0, 1), TOKENS.roll(-1, 1).flatten()).backward()
        optimizer.step()


def told(build, *args):
    """Return what a call returns, and whether it warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return build(*args), bool(caught)


def differs_silently(network, saved_by, resumed_by, options):
    unbroken, resumed = build(network), build(network)

    def built(arrival, model):
        return ARRIVALS[arrival](model, fused=False, **OPTIONS[options])

    first, is_guessed = told(built, saved_by, unbroken)
    second, is_guessed_again = told(built, resumed_by, resumed)
    may_guess = network is Odd or {saved_by, resumed_by} & UNINFORMED
    train(unbroken, first, 3)
    resumed.load_state_dict(unbroken.state_dict())
    try:
        _, is_loaded_loudly = told(second.load_state_dict, first.state_dict())
    except (ValueError, LayoutError):
        return False
    train(unbroken, first, 3)
    _, is_resumed_loudly = told(train, resumed, second, 3)
    is_same = all(map(torch.equal, unbroken.state_dict().values(), resumed.state_dict().values()))
    is_heard = is_loaded_loudly or is_resumed_loudly
    return not (is_same or is_heard or (may_guess and (is_guessed or is_guessed_again)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("arrival", ARRIVALS)
def test_the_same_arrival_resumes_exactly(arrival, options):
    model, again = build(Odd), build(Odd)
    optimizer = ARRIVALS[arrival](model, fused=False, **OPTIONS[options])
    train(model, optimizer, 3)
    resumed = ARRIVALS[arrival](again, fused=False, **OPTIONS[options])
    again.load_state_dict(model.state_dict())
    resumed.load_state_dict(optimizer.state_dict())
    train(model, optimizer, 3)
    train(again, resumed, 3)
    assert all(map(torch.equal, model.state_dict().values(), again.state_dict().values()))


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("network", [Registered, Odd])
def test_no_arrival_resumes_another_differently_in_silence(network, options):
    pairs = itertools.product(ARRIVALS, ARRIVALS)
    silent = [pair for pair in pairs if differs_silently(network, *pair, options)]
    assert not silent
