"""Loading never lets a parameter's running norm be that of another direction."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear

from nero import Nero
from nero.diagnostics import turning_angle

TOKENS = torch.randint(0, 50, (8, 7), generator=torch.Generator().manual_seed(0))
RESTARTS = "was saved with a different direction, so its running norm restarts"


class LanguageModel(nn.Module):
    """Its embedding is the output layer, too, which only a forward pass shows."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50, 16)
        self.block = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, tokens):
        stream = 4 * self.tokens(tokens)
        return linear(self.block(stream) + stream, self.tokens.weight)


def step(model, optimizer):
    optimizer.zero_grad()
    loss = cross_entropy(model(TOKENS).flatten(0, 1), TOKENS.roll(-1, 1).flatten())
    (0.01 * loss).backward()  # so that the norms of gradients and of polar factors differ
    optimizer.step()


def angles(model, optimizer):
    old = {name: param.detach().clone() for name, param in model.named_parameters()}
    step(model, optimizer)
    return {
        name: turning_angle(old[name], param.detach(), fan_in_dims=(1,)).median().item()
        for name, param in model.named_parameters()
        if param.ndim == 2
    }


def resumed(before, after):
    """Return the angles of an unbroken and a resumed run, and what loading said."""
    torch.manual_seed(0)
    model, again = LanguageModel(), LanguageModel()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer, other = before(model), after(again)
    for _ in range(30):
        step(model, optimizer)
    again.load_state_dict(model.state_dict())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        other.load_state_dict(optimizer.state_dict())
    told = [str(each.message) for each in caught]
    return angles(model, optimizer), angles(again, other), told, other


def polar(**options):
    return lambda model: Nero(model, preset="polar", **options)


@pytest.mark.parametrize("options", [{}, {"constraint": "balanced"}], ids=str)
def test_a_tie_that_only_an_example_shows(options):
    """The table was an embedding, for which direction="polar" meant nothing; it must not begin to."""
    unbroken, found, told, _ = resumed(polar(**options), polar(**options, example=TOKENS))
    for name in ("tokens.weight", "block.0.weight"):
        assert found[name] == pytest.approx(unbroken[name], rel=1e-3)
    # The last layer was the output layer, and is a hidden one now: its average starts again.
    assert any(text.startswith("`block.2.weight` (gradient)") and RESTARTS in text for text in told)
    assert found["block.2.weight"] < 0.031


def test_an_embedding_that_is_a_hidden_layer_here():
    """It goes on along its gradient, as it did: its group's direction="polar" must not begin to act."""
    hidden = {"tokens.weight": {"role": "neuron", "neuron_dims": 0}}
    constraint = {"constraint": "balanced"}
    after = polar(**constraint, overrides=hidden)
    built = after(LanguageModel())
    assert next(g for g in built.param_groups if g["role"] == "neuron")["direction"] == "polar"
    unbroken, found, told, _ = resumed(polar(**constraint), after)
    assert found == pytest.approx(unbroken, rel=1e-3)
    assert not told


def test_a_named_list_loaded_into_a_model():
    """Without modules the table was a hidden layer along its polar factor."""
    named = lambda model: Nero([*model.named_parameters()], preset="polar")  # noqa: E731
    unbroken, found, told, _ = resumed(named, polar())
    assert any(text.startswith("`tokens.weight` (polar)") and RESTARTS in text for text in told)
    assert 0.02 < found["tokens.weight"] < 0.031
    assert found["block.0.weight"] == pytest.approx(unbroken["block.0.weight"], rel=1e-3)


def test_the_same_way_of_building_says_nothing():
    for how in (polar(), polar(example=TOKENS), Nero, lambda model: Nero(model, preset="rows")):
        unbroken, found, told, _ = resumed(how, how)
        assert found == unbroken
        assert not told


def test_momentum_survives_a_restart():
    named = lambda model: Nero([*model.named_parameters()], preset="polar")  # noqa: E731
    *_, optimizer = resumed(named, polar())
    model_table = optimizer.param_groups[0]["params"][0]
    assert optimizer.state[model_table]["exp_avg"].abs().sum() > 0
    assert int(optimizer.state[model_table]["step"]) == 1
