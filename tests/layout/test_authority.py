"""One order of authority: override, tie, rule, observation, mark, guess."""

import pytest
import torch
from torch import nn
from torch.nn.functional import linear

import nero
from nero import Nero
from nero.layout import infer_layouts, neurons, registry

BATCH = torch.randn(2, 6)
TOKENS = torch.randint(0, 50, (2, 7))


class InOut(nn.Module):
    """Stores (in, out)."""

    def __init__(self, num_in=6, num_out=10):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(num_in, num_out))

    def forward(self, x):
        return x @ self.kernel


class Functional(nn.Module):
    """Its embedding is an output layer that no module shows."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50, 8)
        self.block = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, tokens):
        return linear(self.block(self.tokens(tokens)), self.tokens.weight)


@pytest.fixture
def register():
    """Register a rule for InOut until the test ends."""
    yield lambda *dims: nero.register_layout(InOut, {"kernel": neurons(*dims)})
    registry._RULES.pop(InOut, None)


def net():
    return nn.Sequential(InOut(), nn.Linear(10, 3))


def found_in(model, name="0.kernel", **options):
    return next(each for each in infer_layouts(model, **options) if each.name == name)


@pytest.mark.filterwarnings("ignore:the neurons of")
class TestAMarkAndTheModelInHand:
    @pytest.mark.parametrize("options", [{}, {"example": BATCH}], ids=["guessed", "seen"])
    def test_a_rule_that_was_registered_since_wins(self, register, options):
        model = nero.annotate(net(), **options)
        register(0)
        each = found_in(model)
        assert (each.layout.neuron_dims, each.authority, each.reason) == ((0,), "rule", "InOut")
        register(1)
        Nero(model)
        assert torch.allclose(model[0].kernel.norm(dim=0), torch.ones(10))

    @pytest.mark.parametrize("options", [{}, {"example": TOKENS}], ids=["registered", "seen"])
    def test_a_tie_that_was_made_since_wins(self, options):
        model = Functional()
        model.head = nn.Linear(8, 50, bias=False)
        model.forward = lambda tokens: model.head(model.block(model.tokens(tokens)))
        nero.annotate(model, **options)
        assert found_in(model, "tokens.weight").layout.role == "embedding"
        model.head.weight = model.tokens.weight
        each = found_in(model, "tokens.weight")
        assert (each.layout.role, each.authority, each.is_output) == ("neuron", "tie", True)
        Nero(model, preset="rows")
        assert torch.allclose(model.tokens.weight.norm(dim=1), torch.ones(50))

    @pytest.mark.parametrize("options", [{}, {"example": torch.randn(2, 8)}], ids=["last", "seen"])
    def test_the_last_layer_of_a_part_is_none_of_the_whole(self, options):
        encoder = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        nero.annotate(encoder, **options)
        whole = nn.Sequential(encoder, nn.ReLU(), nn.Linear(8, 3))
        assert [each.name for each in infer_layouts(whole) if each.is_output] == ["2.weight"]
        assert [each.name for each in infer_layouts(encoder) if each.is_output] == ["2.weight"]

    def test_an_override_stays_the_word_of_the_user(self, register):
        overrides = {"0.kernel": {"neuron_dims": (1,)}}
        model = nero.annotate(net(), overrides=overrides)
        register(0)
        for each in (found_in(model), found_in(model, example=BATCH)):
            assert (each.layout.neuron_dims, each.authority) == ((1,), "override")
            assert each.reason == "InOut; annotated"
        (group,) = nero.param_groups(model, overrides={"*kernel": {"neuron_dims": (0,)}})[:1]
        assert group["neuron_dims"] == (0,)  # that of now is stronger

    def test_an_override_decides_a_conflict_for_good(self):
        model = nn.ModuleList(
            [nn.Linear(4, 4, bias=False), nn.ConvTranspose1d(4, 4, 1, bias=False)]
        )
        model[1].weight = model[0].weight = nn.Parameter(torch.randn(4, 4, 1))
        with pytest.raises(nero.LayoutError, match="one tied parameter"):
            nero.annotate(model)
        nero.annotate(model, overrides={"0.weight": {"neuron_dims": (1,)}})
        assert Nero(model).param_groups[0]["neuron_dims"] == (1,)

    def test_a_third_owner_does_not_settle_what_the_second_disputes(self):
        layers = nn.Conv1d(4, 4, 1), nn.ConvTranspose1d(4, 4, 1), nn.Conv1d(4, 4, 1)
        for layer in layers[1:]:
            layer.weight = layers[0].weight
        model = nn.ModuleList(layers)
        for use in (nero.annotate, Nero):
            with pytest.raises(nero.LayoutError, match=r"`0\.weight` and `1\.weight` are one tied"):
                use(model)

    @pytest.mark.parametrize(
        "options",
        [{"overrides": {"0.kernel": {"neuron_dims": (1,)}}}, {"example": BATCH}],
        ids=["override", "seen"],
    )
    def test_annotating_again_starts_from_scratch(self, options):
        model = nero.annotate(net(), **options)
        assert found_in(model).layout.neuron_dims == (1,)
        nero.annotate(model)
        each = found_in(model)
        assert (each.layout.neuron_dims, each.authority) == ((0,), "guess")
        assert Nero([model[0].kernel]).param_groups[0]["neuron_dims"] == (0,)

    def test_what_was_seen_stays_if_modules_say_the_same(self):
        model = nero.annotate(net(), example=BATCH)
        each = found_in(model)
        assert (each.layout.neuron_dims, each.authority) == ((1,), "observation")
        bigger = nn.Sequential(model, nn.Linear(3, 3))
        assert found_in(bigger, "0.0.kernel").layout.neuron_dims == (1,)

    def test_a_tie_that_was_seen_stays_in_a_larger_model(self):
        part = nero.annotate(Functional(), example=TOKENS)
        whole = nn.ModuleDict({"part": part, "head": nn.Linear(50, 3)})
        outputs = [each.name for each in infer_layouts(whole) if each.is_output]
        assert outputs == ["part.tokens.weight", "head.weight"]

    def test_layers_that_nothing_follows_are_known_of_the_whole_model_only(self):
        model = nero.annotate(Functional(), example=TOKENS)
        assert [e.name for e in infer_layouts(model) if e.is_output] == ["tokens.weight"]
        model.extra = nn.Linear(8, 8)
        outputs = [each.name for each in infer_layouts(model) if each.is_output]
        assert outputs == ["tokens.weight", "extra.weight"]

    def test_a_mark_beats_a_guess(self, register):
        register(1)
        model = nero.annotate(net())
        registry._RULES.pop(InOut)  # as if its parameter were moved to a wrapper that nobody knows
        each = found_in(model)
        assert (each.layout.neuron_dims, each.authority) == ((1,), "rule")

    def test_a_guess_of_then_is_a_guess_now(self):
        model = nero.annotate(net())
        with pytest.warns(nero.LayoutWarning, match="guessed"):
            Nero(model)

    def test_an_example_that_does_not_reach_it_leaves_what_was_seen(self):
        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = InOut(), InOut()

            def forward(self, x, *, which="second"):
                return getattr(self, which)(x)

        model = nero.annotate(Both(), example=BATCH)
        first = {"example": lambda m: m(BATCH, which="first")}
        assert found_in(model, "second.kernel", **first).layout.neuron_dims == (1,)

    def test_parameters_alone_have_their_marks_only(self, register):
        model = nero.annotate(net())
        register(1)
        assert Nero([model[0].kernel]).param_groups[0]["neuron_dims"] == (0,)


def test_a_rule_beats_what_is_seen(register):
    register(0)
    with pytest.warns(nero.LayoutWarning, match="the registered layout is used"):
        each = found_in(net(), example=BATCH)
    assert (each.layout.neuron_dims, each.authority) == ((0,), "rule")


def test_seeing_beats_guessing():
    each = found_in(net(), example=BATCH)
    assert (each.layout.neuron_dims, each.authority) == ((1,), "observation")
    assert found_in(net()).authority == "guess"
