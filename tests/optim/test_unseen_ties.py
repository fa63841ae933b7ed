"""An embedding that the forward pass uses as output layer too, though no module ties it to one."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import linear, normalize

import nero
from nero import Nero
from nero.core.neurons import LayoutWarning

TOKENS = torch.randint(0, 50, (2, 7))

OUTPUTS = {
    "linear": linear,
    "matmul": lambda features, weight: features @ weight.T,
    "einsum": lambda features, weight: torch.einsum("btd,vd->btv", features, weight),
    "cosines": lambda features, weight: linear(features, normalize(weight, dim=-1)),
}


class LanguageModel(nn.Module):
    def __init__(self, output, *, is_registered=True):
        super().__init__()
        self.output, self.is_registered = output, is_registered
        self.tokens = nn.Embedding(50, 8) if is_registered else nn.Parameter(torch.randn(50, 8))
        self.positions = nn.Embedding(16, 8)
        self.block = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, tokens):
        table = self.tokens.weight if self.is_registered else self.tokens
        stream = table[tokens] if not self.is_registered else self.tokens(tokens)
        stream = stream + self.positions(torch.arange(tokens.shape[1]))
        return self.output(self.block(stream) + stream, table)


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=[*OUTPUTS])
@pytest.mark.parametrize("is_registered", [True, False])
def test_an_example_shows_it(output, is_registered):
    model = LanguageModel(output, is_registered=is_registered)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = nero.describe(model, preset="polar", example=TOKENS)
        optimizer = Nero(model, preset="polar", example=TOKENS)
    rows = {row.name: row for row in shown.rows}
    tokens = rows["tokens.weight" if is_registered else "tokens"]
    assert (tokens.role, tokens.constraint) == ("neuron", "mean 0, norm 1")
    assert tokens.reason.endswith("also the last layer; an output layer")
    # The layer that is registered last is a hidden one then.
    assert rows["block.2.weight"].reason == "Linear; turns against its polar direction"
    assert rows["positions.weight"].role == "embedding"
    table = dict(model.named_parameters())[tokens.name]
    assert torch.allclose(table.norm(dim=1), torch.ones(50))
    assert optimizer.param_groups[0]["direction"] == "gradient"


def test_an_example_leaves_a_mere_embedding_alone():
    model = LanguageModel(lambda features, weight: features)
    rows = {row.name: row for row in nero.describe(model, preset="polar", example=TOKENS).rows}
    assert rows["tokens.weight"].role == "embedding"
    assert rows["block.2.weight"].reason == "Linear; an output layer"


class OtherUses(nn.Module):
    """Embeddings that are multiplied with data or with weights, and are not the output."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50, 8)
        self.queries = nn.Embedding(4, 8)
        self.memory = nn.Embedding(5, 8)
        self.project = nn.Linear(8, 8)
        self.head = nn.Linear(8, 50)

    def forward(self, tokens):
        stream = self.tokens(tokens)
        queries = self.project(self.queries.weight)  # a product of weights
        stream = stream + (stream @ queries.T) @ queries
        found = stream @ self.memory.weight.T  # keys of a memory, and its values
        logits = self.head(stream + found.softmax(-1) @ self.memory.weight)
        return logits, (self.project.weight @ self.queries.weight.T).square().mean()  # a penalty


def test_an_embedding_that_other_layers_follow_is_not_the_output():
    shown = nero.describe(OtherUses(), preset="polar", example=TOKENS)
    rows = {row.name: row for row in shown.rows}
    for name in ("tokens", "queries", "memory"):
        assert rows[f"{name}.weight"].role == "embedding"
    assert rows["head.weight"].reason == "Linear; an output layer"


class ValueHead(LanguageModel):
    """A functional tie, and a second head that is called after it, or before it."""

    def __init__(self, *, is_first):
        super().__init__(linear)
        self.is_first = is_first
        self.value = nn.Linear(8, 1)

    def forward(self, tokens):
        stream = self.tokens(tokens)
        stream = stream + self.block(stream)
        if self.is_first:
            value = self.value(stream)
            return linear(stream, self.tokens.weight), value
        return linear(stream, self.tokens.weight), self.value(stream)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_second_head_changes_nothing(is_first):
    model = ValueHead(is_first=is_first)
    shown = nero.describe(model, preset="polar", example=TOKENS)
    rows = {row.name: row for row in shown.rows}
    assert rows["tokens.weight"].constraint == "mean 0, norm 1"
    assert rows["tokens.weight"].reason == "Embedding; also the last layer; an output layer"
    assert rows["value.weight"].reason == "Linear; an output layer"
    assert rows["block.2.weight"].reason == "Linear; turns against its polar direction"


class Calibrated(LanguageModel):
    """Another layer reads the logits."""

    def __init__(self):
        super().__init__(linear)
        self.calibration = nn.Linear(50, 50)

    def forward(self, tokens):
        return self.calibration(super().forward(tokens))


def test_a_layer_that_reads_the_logits_changes_nothing():
    shown = nero.describe(Calibrated(), preset="polar", example=TOKENS)
    rows = {row.name: row for row in shown.rows}
    assert rows["tokens.weight"].reason == "Embedding; also computes logits; an output layer"
    assert rows["tokens.weight"].constraint == "mean 0, norm 1"
    assert rows["calibration.weight"].reason == "Linear; an output layer"
    assert rows["positions.weight"].role == "embedding"


class Quantized(nn.Module):
    """A codebook: data is compared with every row, and the nearest is looked up."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50, 8)
        self.encode, self.codes = nn.Linear(8, 8), nn.Embedding(6, 8)
        self.head = nn.Linear(8, 50)

    def forward(self, tokens):
        latent = self.encode(self.tokens(tokens))
        nearest = (latent @ self.codes.weight.T).argmax(-1)
        return self.head(self.codes(nearest))


class RelativePositions(nn.Module):
    """Queries are multiplied with looked-up vectors for distances, and with all of another table."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50, 8)
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.distances, self.slots = nn.Embedding(13, 8), nn.Embedding(7, 8)
        self.head = nn.Linear(8, 50)

    def forward(self, tokens):
        stream = self.tokens(tokens)
        query, key, value = self.query(stream), self.key(stream), self.value(stream)
        place = torch.arange(tokens.shape[1])
        near = self.distances(place[:, None] - place + 6)
        scores = query @ key.mT + torch.einsum("bqd,qkd->bqk", query, near)
        scores = scores + query @ self.slots.weight.T
        return self.head(scores.softmax(-1) @ value)


@pytest.mark.parametrize("cls", [Quantized, RelativePositions])
def test_tables_that_are_multiplied_on_the_way_are_no_outputs(cls):
    rows = {row.name: row for row in nero.describe(cls(), preset="polar", example=TOKENS).rows}
    tables = [row for name, row in rows.items() if name.split(".")[0] in NAMES_OF_TABLES]
    assert len(tables) >= 2
    assert {row.role for row in tables} == {"embedding"}
    assert rows["head.weight"].reason == "Linear; an output layer"


NAMES_OF_TABLES = ("tokens", "codes", "distances", "slots")


class HalfWay(LanguageModel):
    def forward(self, tokens):
        scores = self.tokens(tokens) @ self.tokens.weight.T
        return self.missing(scores)


def test_a_pass_that_stops_early_shows_no_output():
    with pytest.warns(LayoutWarning, match="the rest of the pass was not seen"):
        shown = nero.describe(HalfWay(linear), preset="polar", example=TOKENS)
    assert shown.rows[0].role == "embedding"


def test_a_pass_that_stops_early_does_not_silence_the_warning():
    model = HalfWay(linear)
    with pytest.warns(LayoutWarning, match="the rest of the pass was not seen"):
        nero.annotate(model, example=TOKENS)
    for params in (model, [*model.named_parameters()]):
        with pytest.warns(
            LayoutWarning, match="`tokens.weight`.* may also be used as an output layer"
        ):
            Nero(params, preset="rows")


@pytest.mark.parametrize("preset", ["rows", "polar"])
def test_without_an_example_the_user_is_told(preset):
    model = LanguageModel(linear)
    with pytest.warns(
        LayoutWarning,
        match=r"`tokens.weight` or `positions.weight` may also be used as an output layer",
    ) as heard:
        Nero(model, preset=preset)
    assert len(heard) == 1
    nero.annotate(model)
    with pytest.warns(
        LayoutWarning, match=r"`tokens.weight`.*nero.annotate if you pass parameters"
    ):
        Nero([*model.named_parameters()], preset=preset)


@pytest.mark.parametrize(
    "params",
    [
        lambda model: model,
        lambda model: model.parameters(),
        lambda model: [*model.named_parameters()],
        lambda model: [{"params": model.parameters()}],
        nero.param_groups,
    ],
)
def test_what_annotate_saw_is_known_later(params):
    model = nero.annotate(LanguageModel(linear), example=TOKENS)
    Nero(params(model), preset="rows")
    assert torch.allclose(model.tokens.weight.norm(dim=1), torch.ones(50))
    nero.annotate(model)  # without an example, what it saw is forgotten
    assert nero.describe(model).rows[0].role == "embedding"


@pytest.mark.parametrize("preset", ["rows", "polar"])
@pytest.mark.parametrize("build", [lambda: ValueHead(is_first=True), Calibrated])
def test_other_heads_do_not_silence_it(build, preset):
    with pytest.warns(
        LayoutWarning, match="^`tokens.weight`.* may also be used as an output layer"
    ) as heard:
        Nero(build(), preset=preset)
    assert len(heard) == 1
    assert len(str(heard[0].message)) < 320


class Untied(nn.Module):
    """A head of its own, with as many tokens as the model is wide."""

    def __init__(self, width=50, num_positions=16):
        super().__init__()
        self.tokens = nn.Embedding(50, width)
        self.positions = nn.Embedding(num_positions, width)
        self.block = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, width))
        self.head = nn.Linear(width, 50)


@pytest.mark.parametrize("num_positions", [16, 50, 200])
@pytest.mark.parametrize("width", [50, 24])
def test_a_head_of_its_own_is_no_reason_to_warn(width, num_positions):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Nero(Untied(width, num_positions), preset="rows")


class Regressor(Untied):
    """Names its output embedding as Hugging Face's models do: it has none."""

    def __init__(self):
        super().__init__(width=24)
        self.head = nn.Linear(24, 1)

    def get_output_embeddings(self):
        return None


def test_a_model_that_names_its_output_embedding_has_no_other():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Nero(Regressor(), preset="rows")


def test_as_many_positions_as_features_do_not_silence_it():
    model = LanguageModel(linear)
    model.positions = nn.Embedding(8, 8)
    with pytest.warns(LayoutWarning, match="^`tokens.weight` may also be used as an output layer"):
        Nero(model, preset="rows")


def without_preset(model):
    return Nero(model)


def with_a_constraint(model):
    return Nero(model, preset="rows", constraint="balanced")


def with_balanced_embeddings(model):
    return Nero(model, preset="rows", overrides={"role=embedding": {"constraint": "balanced"}})


def with_a_frozen_embedding(model):
    model.tokens.requires_grad_(False)
    model.positions.requires_grad_(False)
    return Nero(model, preset="rows")


def with_a_head(model):
    model.head = nn.Linear(8, 3)
    return Nero(model, preset="rows")


def with_a_tied_head(model):
    model.head = nn.Linear(8, 50, bias=False)
    model.head.weight = model.tokens.weight
    return Nero(model, preset="rows")


def with_an_example(model):
    return Nero(model, preset="rows", example=TOKENS)


@pytest.mark.parametrize(
    "build",
    [
        without_preset,
        with_a_constraint,
        with_balanced_embeddings,
        with_a_frozen_embedding,
        with_a_head,
        with_a_tied_head,
        with_an_example,
    ],
)
def test_nobody_is_told_where_it_is_known_or_does_not_matter(build):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(LanguageModel(linear))


@pytest.mark.parametrize("preset", ["rows", "polar"])
def test_a_checkpoint_from_before_it_was_seen_is_told(preset):
    model = LanguageModel(linear)
    saved = Nero(model, preset=preset).state_dict()
    optimizer = Nero(model, preset=preset, example=TOKENS)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        optimizer.load_state_dict(saved)
    told = "`tokens.weight` was saved with role embedding but has role neuron here"
    assert any(str(warning.message).startswith(told) for warning in heard)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.load_state_dict(Nero(model, preset=preset, example=TOKENS).state_dict())
