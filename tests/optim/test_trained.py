"""Trained weights are noticed, fresh ones and Nero's own are not."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

import nero
from nero.checks import trained
from nero.checks.trained import NUM_CHILDREN, NUM_NUMBERS, NUM_PICKS, Layer
from nero.core.neurons import LayoutWarning
from nero.core.traces import THRESHOLD, training_score
from tests.optim.fresh_models import quick

WARNING = "look pretrained, and the default constraint changes them by"


def network(width=64):
    sizes = [(32, width), (width, width), (width, width), (width, 32)]
    layers = [layer for n, m in sizes for layer in (nn.Linear(n, m), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def matrices(*weights):
    """A group that says itself what its neurons are."""
    return [{"params": [nn.Parameter(weight) for weight in weights], "neuron_dims": (0,)}]


def step(model, optimizer, num_inputs=32):
    optimizer.zero_grad()
    model(torch.randn(16, num_inputs)).square().mean().backward()
    optimizer.step()


@pytest.fixture(scope="module")
def trained_state():
    """The weights of a network that Adam has taught to multiply by a matrix of low rank."""
    torch.manual_seed(0)
    model, task = network(), torch.randn(32, 4) @ torch.randn(4, 32) / 8
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(500):
        inputs = torch.randn(64, 32)
        optimizer.zero_grad()
        (model(inputs) - inputs @ task).square().mean().backward()
        optimizer.step()
    return model.state_dict()


@pytest.fixture
def trained_model(trained_state):
    model = network()
    model.load_state_dict(trained_state)
    return model


def assert_quiet(call, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # torch has others of its own
        return call(*args)


# --- fresh weights ---


@pytest.mark.parametrize("build", [pytest.param(b, id=name) for name, b in quick()])
def test_fresh_models_are_not_noticed(build):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LayoutWarning)
        optimizer = nero.Nero(build())
    assert trained.layers_of(optimizer.param_groups), "nothing was judged"


def test_a_table_of_sinusoids_is_no_trained_network():
    angles = torch.arange(4000)[:, None] / 10_000 ** (torch.arange(32) / 32)
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    assert training_score(table[::16]) > THRESHOLD
    assert_quiet(nero.Nero, nn.Sequential(nn.Embedding.from_pretrained(table, False), network()))


# --- trained weights, before construction ---


def relative_change(before, after):
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if a.ndim == 2]
    changed = sum((a - b).square().sum() for a, b in pairs)
    return (changed / sum(a.square().sum() for a, _ in pairs)).sqrt().item()


WAYS = {
    "model": lambda m: m,
    "parameters": lambda m: m.parameters(),
    "named parameters": lambda m: m.named_parameters(),
    "list": lambda m: [*nero.annotate(m).parameters()],
    "groups": lambda m: [
        {"params": [*part.parameters()]} for part in (nero.annotate(m)[:4], m[4:])
    ],
}


@pytest.mark.parametrize("way", [*WAYS, "Balanced"])
def test_trained_weights_are_noticed_with_their_change(trained_model, way):
    before = [p.detach().clone() for p in trained_model.parameters()]
    build, given = nero.Nero, WAYS.get(way, nero.param_groups)(trained_model)
    if way == "Balanced":
        build, given = nero.Balanced, torch.optim.SGD(given, lr=0.1)
    with pytest.warns(UserWarning, match=WARNING) as caught:
        build(given)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    message = str(caught[0].message)
    assert 'constraint="initial"' in message
    assert 'constraint="balanced"' in message
    said = int(message.partition("changes them by ")[2].partition("%")[0])
    after = [p.detach() for p in trained_model.parameters()]
    assert said == pytest.approx(100 * relative_change(before, after), abs=5)


@pytest.mark.parametrize("choice", ["balanced", nero.BALANCED, nero.Sphere(), "initial", "norm"])
def test_whoever_chooses_a_constraint_is_not_warned(trained_state, choice):
    for build in (
        nero.Nero,
        lambda m, **o: nero.Balanced(torch.optim.SGD(nero.param_groups(m)), **o),
    ):
        model = network()
        model.load_state_dict(trained_state)
        optimizer = assert_quiet(lambda build=build, m=model: build(m, constraint=choice))
        assert_quiet(step, model, optimizer)


def test_an_override_is_a_choice(trained_model):
    overrides = [("*.weight", {"constraint": "balanced"})]
    assert_quiet(lambda: nero.Nero(trained_model, overrides=overrides))


def test_the_default_is_stored_as_before():
    optimizer = nero.Nero(network())
    assert optimizer.param_groups[0]["constraint"] == nero.BALANCED
    assert optimizer.defaults["constraint"] == nero.BALANCED
    saved = optimizer.state_dict()["param_groups"][0]["constraint"]
    assert saved == {"radius": 1.0, "centre": True}


def test_a_trained_body_under_a_larger_head(trained_model):
    model = nn.ModuleDict({"body": trained_model, "head": nn.Linear(32, 2000)})
    with pytest.warns(UserWarning, match=f"the weights of `body` {WARNING}"):
        nero.Nero(copy.deepcopy(model))
    wrapped = nn.ModuleDict({"module": model})
    with pytest.warns(UserWarning, match=f"the weights of `module.body` {WARNING}"):
        nero.Nero(wrapped)


def test_frozen_weights_are_noticed_when_they_thaw(trained_model):
    model = trained_model.requires_grad_(False).append(nn.Linear(32, 32))
    optimizer = assert_quiet(nero.Nero, model)
    assert_quiet(step, model, optimizer)
    model.requires_grad_(True)
    with pytest.warns(UserWarning, match=WARNING) as caught:
        step(model, optimizer)
    assert len(caught) == 1
    assert_quiet(step, model, optimizer)


def test_groups_that_are_added_are_judged(trained_model):
    optimizer = nero.Nero(nn.Linear(32, 32))
    (weights, _) = nero.param_groups(trained_model)
    with pytest.warns(UserWarning, match=WARNING):
        optimizer.add_param_group(weights)


def test_code_without_a_module_is_warned_too(trained_model):
    with pytest.warns(UserWarning, match=WARNING):
        exec("Nero(model)", {"Nero": nero.Nero, "model": trained_model})


# --- trained weights, loaded after construction ---

OPTIMIZERS = {
    "plain": lambda m: nero.Nero(m, fused=False),
    "fastest": nero.Nero,
    "Balanced": lambda m: nero.Balanced(torch.optim.SGD(nero.param_groups(m), lr=0.01)),
}


@pytest.mark.parametrize("num_steps", [0, 1, 5])
@pytest.mark.parametrize("build", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_loaded_weights_are_noticed_at_the_next_step(trained_state, build, num_steps):
    model = network()
    optimizer = assert_quiet(build, model)
    for _ in range(num_steps):
        assert_quiet(step, model, optimizer)
    model.load_state_dict(trained_state)
    with pytest.warns(UserWarning, match=WARNING) as caught:
        step(model, optimizer)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert_quiet(step, model, optimizer)


def test_a_body_that_is_loaded_is_noticed(trained_state):
    model = nn.Sequential(network(), nn.Linear(32, 2000))
    optimizer = nero.Nero(model)
    step(model, optimizer)
    model[0].load_state_dict(trained_state)  # the head is on the constraint, and passed over
    with pytest.warns(UserWarning, match=WARNING):
        step(model, optimizer)


def test_fresh_weights_may_be_loaded():
    model = network()
    optimizer = nero.Nero(model)
    step(model, optimizer)
    model.load_state_dict(network().state_dict())
    assert_quiet(step, model, optimizer)


def test_an_optimizer_that_loads_its_state_still_watches(trained_state):
    """Trainers load an optimizer's own state into it, to move it to a device."""
    model = network()
    optimizer = nero.Nero(model)
    optimizer.load_state_dict(optimizer.state_dict())
    model.load_state_dict(trained_state)
    with pytest.warns(UserWarning, match=WARNING):
        step(model, optimizer)


def test_a_checkpoint_with_another_constraint_is_obeyed(trained_state, trained_model):
    saved = nero.Nero(trained_model, constraint="initial").state_dict()
    model = network()
    optimizer = nero.Nero(model)
    model.load_state_dict(trained_state)
    optimizer.load_state_dict(saved)
    assert_quiet(step, model, optimizer)


def test_weights_are_judged_only_when_somebody_has_written_to_them(monkeypatch):
    judged = []
    monkeypatch.setattr(trained, "warn_if_trained", lambda layers: judged.append(layers))
    model = network()
    optimizer = nero.Nero(model)
    step(model, optimizer)
    num_before = len(judged)
    for _ in range(3):
        step(model, optimizer)
    assert len(judged) == num_before == 1  # Nero has its own name of the function
    with torch.no_grad():
        model[0].weight.mul_(1.0)
    step(model, optimizer)
    assert len(judged) == 2


def test_writes_before_every_step_are_not_judged_for_ever(monkeypatch):
    judged = []
    monkeypatch.setattr(trained, "warn_if_trained", lambda layers: judged.append(layers))
    model = network()
    optimizer = nero.Nero(model)
    for _ in range(10):
        with torch.no_grad():
            model[0].weight.clamp_(-1, 1)
        step(model, optimizer)
    assert len(judged) == 3
    for _ in range(101):
        step(model, optimizer)
    with torch.no_grad():
        model[0].weight.mul_(1.0)
    step(model, optimizer)  # after a long rest, a write may be a load again
    assert len(judged) == 4


# --- weights that Nero has trained ---


@pytest.fixture(scope="module")
def nero_checkpoint(trained_state):
    """Weights that would be noticed, were they not on the constraint."""
    model = network()
    model.load_state_dict(trained_state)
    optimizer = nero.Nero(model, lr=0.001, constraint="balanced")
    for _ in range(10):
        step(model, optimizer)
    scores = [training_score(layer.weight.detach()) for layer in model if hasattr(layer, "weight")]
    assert sorted(scores)[1] > THRESHOLD  # of most layers
    return model.state_dict(), optimizer.state_dict()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resuming_does_not_warn(nero_checkpoint, dtype):
    weights, state = nero_checkpoint
    weights = {name: weight.to(dtype) for name, weight in weights.items()}
    model = network()
    model.load_state_dict(weights)
    assert_quiet(nero.Nero, model)

    model = network()
    optimizer = nero.Nero(model)
    model.load_state_dict(weights)
    optimizer.load_state_dict(state)
    assert_quiet(step, model, optimizer)

    optimizer.load_state_dict(state)
    model.load_state_dict(weights)
    assert_quiet(step, model, optimizer)


def test_the_average_of_weights_does_not_warn(nero_checkpoint):
    weights, _ = nero_checkpoint
    model = network()
    model.load_state_dict(weights)
    optimizer = nero.Nero(model, lr=0.03)
    average = torch.optim.swa_utils.AveragedModel(model)
    for _ in range(10):
        step(model, optimizer)
        average.update_parameters(model)
    model.load_state_dict(average.module.state_dict())
    assert_quiet(step, model, optimizer)


# --- what it costs, and where there is nothing to see ---


def test_random_numbers_stay_and_the_verdict_is_the_same(trained_state):
    messages = []
    for seed in range(2):
        model = network()
        model.load_state_dict(trained_state)
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        with pytest.warns(UserWarning, match=WARNING) as caught:
            nero.Nero(model)
        assert torch.equal(torch.get_rng_state(), before)
        messages.append(str(caught[0].message))
    assert messages[0] == messages[1]


def test_what_is_looked_at_does_not_grow_with_the_model(monkeypatch):
    looked = []
    rows = Layer.rows
    monkeypatch.setattr(Layer, "rows", lambda *args: looked.append(args) or rows(*args))
    children = [nn.Sequential(*[nn.Linear(16, 16) for _ in range(20)]) for _ in range(20)]
    nero.Nero(nn.Sequential(*children))
    assert 0 < len(looked) <= 2 * (1 + NUM_CHILDREN) * NUM_PICKS
    looked.clear()
    nero.Nero(matrices(torch.randn(2000, 900), torch.randn(64, 100, 40)))
    assert max(rows(*args).numel() for args in looked) <= NUM_NUMBERS


def test_there_is_nothing_to_see_in_small_or_missing_weights():
    assert_quiet(nero.Nero, nn.Linear(15, 300))
    assert_quiet(nero.Nero, nn.Linear(64, 64, device="meta"))
    zero = nn.Linear(64, 64)
    nn.init.zeros_(zero.weight)
    assert_quiet(nero.Nero, zero)
    assert_quiet(nero.Nero, matrices(torch.full((64, 64), torch.nan)))
    with FakeTensorMode():
        assert_quiet(nero.Nero, nn.Linear(64, 64))


def test_a_compiled_step_does_not_look(trained_state):
    model = network()
    optimizer = nero.Nero(model, lr=torch.tensor(0.01))
    compiled = torch.compile(optimizer.step, fullgraph=True, backend="eager")
    model.load_state_dict(trained_state)
    model(torch.randn(16, 32)).square().mean().backward()
    assert_quiet(compiled)


def test_nothing_is_read_while_a_graph_is_captured(trained_state, monkeypatch):
    model = network()
    optimizer = nero.Nero(model)
    model.load_state_dict(trained_state)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert_quiet(step, model, optimizer)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("wrap", [nero.Nero, lambda m, **o: nero.Balanced(sgd(m), **o)])
def test_copies_know_whether_a_constraint_was_chosen(trained_model, wrap, copied):
    with pytest.warns(UserWarning, match=WARNING):
        unchosen = copied(wrap(trained_model))
    chosen = copied(wrap(trained_model, constraint="balanced"))

    def more():
        return {"params": [("more", nn.Parameter(fresh_but_long()))], "neuron_dims": (0,)}

    assert_quiet(chosen.add_param_group, more())
    with pytest.warns(UserWarning, match=WARNING):
        unchosen.add_param_group(more())


def sgd(model):
    return torch.optim.SGD(nero.param_groups(model), lr=0.1)


def fresh_but_long():
    weight = torch.randn(64, 64)
    weight[:8] *= 6
    return weight


def table_model(norm):
    """A trained table of one norm, in a network that Nero has projected already."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(500, 64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 500))
    table = torch.randn(500, 64) * torch.linspace(0.3, 2, 64)
    table += 1.5 * torch.randn(500, 1) * torch.randn(1, 64)
    with torch.no_grad():
        model[0].weight.copy_(table)
    for layer, radius in ((model[0], norm), (model[1], 1.0), (model[3], 1.0)):
        nero.project_(layer, constraint=nero.Sphere(radius))
    return model


@pytest.mark.parametrize("preset", ["rows", "polar"])
def test_weights_are_judged_by_the_constraint_they_will_get(preset):
    assert_quiet(lambda: nero.Nero(table_model(8.0), preset=preset))  # sqrt(64)
    with pytest.warns(UserWarning, match=f"{WARNING} 700%.*mean 0, norm sqrt_dim"):
        nero.Nero(table_model(1.0), preset=preset)
    assert_quiet(lambda: nero.Nero(table_model(1.0), preset=preset, constraint="balanced"))
    assert_quiet(lambda: nero.Nero(table_model(1.0)))


def test_weights_of_another_preset_are_noticed_though_they_are_small():
    """What Nero trained lies on a sphere, which no fresh weights do, of any size."""
    model = nn.Sequential(nn.Embedding(80, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 80))
    nero.Nero(model)
    with pytest.warns(UserWarning, match=f"{WARNING}.*norm sqrt_dim"):
        nero.Nero(model, preset="rows")


def test_rows_on_a_sphere_that_is_kept_are_no_reason_to_warn():
    model = nn.Sequential(nn.Embedding(80, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 80))
    nero.Nero(model, preset="rows")
    assert_quiet(lambda: nero.Nero(model, preset="rows"))


def test_groups_that_an_engine_has_emptied_are_passed_over():
    model = network()
    optimizer = nero.Nero(model)
    step(model, optimizer)
    for group in optimizer.param_groups:
        group["params"] = []
    optimizer.rule._watch = trained.LoadWatch()
    optimizer.step()
