"""Does the monitor see what the optimizer does, and leave it alone?"""

import copy
import json
import math

import pytest
import torch
from torch import nn

import nero
from nero.diagnostics import Distribution, TurningMonitor, turning_angle


class Reports(list):
    """The smallest sink."""

    write = list.append


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv1d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.ConvTranspose1d(8, 6, 3, padding=1, groups=2),
        nn.Flatten(),
        nn.Linear(24, 10),
        nn.LayerNorm(10),
        nn.Linear(10, 4),
    )


NAMES = ["0.weight", "2.weight", "4.weight", "6.weight"]


def train(model, optimizer, num_steps, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num_steps):
        optimizer.zero_grad()
        inputs = torch.randn(16, 3, 4, generator=generator)
        model(inputs.to(model[0].weight.dtype)).square().mean().backward()
        optimizer.step()


OPTIMIZERS = {
    "Nero": nero.Nero,
    "Nero, initial": lambda m: nero.Nero(m, constraint="initial"),
    "Nero from shapes": lambda m: nero.Nero(m.parameters()),
    "Lamb": nero.baselines.Lamb,
    "Balanced": lambda m: nero.Balanced(torch.optim.SGD(nero.param_groups(m), lr=0.1)),
    "Balanced, initial": lambda m: nero.Balanced(
        torch.optim.Adam(nero.param_groups(m), lr=0.01), constraint="initial"
    ),
    "Adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.01),
    "SGD": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_training_has_the_same_bits_with_and_without(make):
    alone, watched = network(), network()
    train(alone, make(alone), 7)
    optimizer = make(watched)
    rng = torch.get_rng_state()
    with TurningMonitor(optimizer, watched, every=2, max_layers=2, sinks=[Reports()]):
        train(watched, optimizer, 7)
    assert torch.equal(rng, torch.get_rng_state())
    for p, q in zip(alone.parameters(), watched.parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_numbers_are_those_of_a_loop_over_neurons(make):
    model = network().double()
    optimizer = make(model)
    train(model, optimizer, 3)
    before = copy.deepcopy(model)
    monitor = TurningMonitor(optimizer, model)
    train(model, optimizer, 1, seed=5)
    report = monitor.last_report
    assert report.names == NAMES
    for name in NAMES:
        layer, grouped = report[name], name == "2.weight" and optimizer_knows(optimizer)
        old, new, grad = (
            rows_of(w, grouped)
            for w in (before.get_parameter(name), *with_grad(model.get_parameter(name)))
        )
        angles = torch.stack(
            [turning_angle(u, v, fan_in_dims=(0,))[0] for u, v in zip(old, new, strict=True)]
        )
        changes = (new - old).norm(dim=1) / old.norm(dim=1)
        assert layer.num_neurons == layer.angle.num == len(old)
        assert layer.fan_in == old.shape[1]
        check_distribution(layer.angle, angles)
        check_distribution(layer.relative_change, changes)
        check_distribution(layer.norm, new.norm(dim=1))
        assert layer.layer_relative_change == pytest.approx(
            ((new - old).norm() / old.norm()).item()
        )
        assert layer.layer_relative_change <= changes.max() * (1 + 1e-12)  # Equation 2
        assert layer.num_still == layer.num_undefined == layer.num_nonfinite_grad == 0
        assert layer.num_zero_grad == (grad == 0).all(1).sum()


def with_grad(param):
    return param.detach(), param.grad


def optimizer_knows(optimizer):
    """Whether the layouts come from modules; otherwise dim 0 is taken for the neurons."""
    if isinstance(optimizer, nero.Nero):
        return optimizer.param_groups[0]["role"] is not None
    return True  # ours by the groups, torch's by the model that the monitor was given


def rows_of(weight, grouped):
    if not grouped:
        return weight.detach().flatten(1)
    return weight.detach().unflatten(0, (2, -1)).transpose(1, 2).flatten(0, 1).flatten(1)


def check_distribution(got, values):
    assert got.num == len(values)
    wanted = [
        values.mean(),
        values.min(),
        values.max(),
        *values.quantile(torch.tensor(got.SHARES).double()),
    ]
    assert [got.mean, got.min, got.max, *got.quantiles] == pytest.approx([w.item() for w in wanted])
    edges = torch.tensor(got.EDGES).double()
    wanted = torch.histogram(values.clamp(max=got.EDGES[-1]).double(), edges).hist
    assert list(got.histogram) == wanted.int().tolist()
    assert sum(got.histogram) == got.num
    assert got.median == got.quantiles[2]


def test_first_step_of_nero_turns_by_the_learning_rate():
    """Definition 5, exactly: at first the average is the gradient. Across w, the angle is atan(lr)."""
    layer = nn.Linear(100, 20, bias=False).double()
    optimizer = nero.Nero(layer, lr=0.01)
    monitor = TurningMonitor(optimizer)
    grad = torch.randn(20, 100).double()
    grad -= grad.mean(1, keepdim=True)
    weight = layer.weight.detach()
    layer.weight.grad = grad - (grad * weight).sum(1, keepdim=True) * weight
    optimizer.step()
    angle = monitor.last_report["weight"].angle
    assert [angle.min, angle.max] == pytest.approx([math.atan(0.01)] * 2, rel=1e-12)


def test_samples_the_first_step_and_every_so_many_after_it():
    model = network()
    optimizer = nero.Nero(model)
    monitor = TurningMonitor(optimizer, every=4, sinks=[reports := Reports()])
    train(model, optimizer, 10)
    assert [report.step for report in reports] == [1, 5, 9]
    assert monitor.step == 10
    monitor.detach()
    monitor.detach()
    train(model, optimizer, 5)
    assert monitor.step == 10


def test_layers_take_turns():
    model = network()
    optimizer = nero.Nero(model)
    TurningMonitor(optimizer, model, every=1, max_layers=3, sinks=[reports := Reports()])
    train(model, optimizer, 4)
    turns = [[NAMES.index(name) for name in report.names] for report in reports]
    assert turns == [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]


def test_a_resumed_monitor_samples_what_the_unbroken_one_does():
    def run(num_steps, state=None):
        model = network()
        optimizer = nero.Nero(model)
        monitor = TurningMonitor(optimizer, every=3, max_layers=1, sinks=[reports := Reports()])
        if state is not None:
            monitor.load_state_dict(json.loads(json.dumps(state)))  # it is plain
        train(model, optimizer, num_steps)
        return [(r.step, *r.names) for r in reports], monitor.state_dict()

    unbroken, _ = run(13)
    first, state = run(5)
    second, _ = run(8, state)
    assert first + second == unbroken
    assert len(unbroken) == 5


def test_copies_live_only_during_sampled_steps():
    model = network()
    optimizer = nero.Nero(model)
    monitor = TurningMonitor(optimizer, every=2)
    held = []
    optimizer.register_step_pre_hook(lambda *_: held.append(len(monitor._before)))
    optimizer.register_step_post_hook(lambda *_: held.append(len(monitor._before)))
    train(model, optimizer, 3)
    assert held == [4, 0, 0, 0, 4, 0]


def test_a_step_that_fails_leaves_nothing_behind():
    model = nn.Linear(4, 3)
    optimizer = nero.Nero(model, nonfinite="raise")
    monitor = TurningMonitor(optimizer, every=2)
    model.weight.grad = torch.full((3, 4), math.nan)
    with pytest.raises(FloatingPointError):
        optimizer.step()
    assert monitor.last_report is None
    model.weight.grad = torch.randn(3, 4)
    optimizer.step()
    assert monitor.last_report is None
    assert monitor._before == []


def test_neurons_that_stand_still_lack_gradients_or_turn_too_far_are_counted():
    layer = nn.Linear(8, 6, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    monitor = TurningMonitor(optimizer, layer)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.weight[5] = 0.0
    grad = torch.zeros(6, 8)
    grad[1, 0] = 1e-30  # a gradient too small to change a float32 weight
    grad[2, 0] = 0.1
    grad[3, 0] = 20.0
    grad[4, 0] = math.nan
    layer.weight.grad = grad
    optimizer.step()
    found = monitor.last_report["weight"]
    assert (found.num_still, found.num_zero_grad, found.num_nonfinite_grad) == (2, 2, 1)
    assert (found.num_too_far, found.num_undefined, found.angle.num) == (1, 2, 4)
    sentences = "\n".join(monitor.last_report.findings())
    assert "weight: 1 of 6 neurons had NaN or inf in their gradient" in sentences
    assert "weight: 2 of 6 neurons are zero or not finite" in sentences
    assert "weight: 1 of 6 neurons turned by more than 0.3 rad" in sentences
    assert str(monitor.last_report).endswith(sentences)
    assert json.loads(json.dumps(monitor.last_report.as_dict(), allow_nan=False))


@pytest.mark.parametrize("name", ["Nero", "Adam"])
def test_rows_of_an_embedding_that_a_batch_leaves_out_are_no_finding(name):
    model = nn.Embedding(10, 4)
    optimizer = OPTIMIZERS[name](model)
    monitor = TurningMonitor(optimizer, model, every=1)
    model(torch.tensor([0, 3])).square().sum().backward()
    optimizer.step()
    found = monitor.last_report["weight"]
    assert (found.num_zero_grad, found.num_still) == (8, 8)
    assert monitor.last_report.findings() == []
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()
    assert "weight: 10 of 10 neurons had no gradient" in monitor.last_report.findings()


@pytest.mark.parametrize(
    ("make", "threshold"),
    [
        (lambda p: nero.Nero(p, lr=0.01), 0.1),
        (lambda p: nero.Nero(p, lr=0.5), 0.3),
        (lambda p: nero.Nero(p, lr=0.0), torch.finfo(torch.float32).eps),  # as warm-ups begin
        (lambda p: torch.optim.Adam(p, lr=0.01), 0.3),
    ],
)
def test_what_too_far_means(make, threshold):
    layer = nn.Linear(8, 4)
    optimizer = make([layer.weight])
    with TurningMonitor(optimizer) as monitor, TurningMonitor(optimizer, too_far=0.05) as strict:
        layer.weight.grad = torch.randn(4, 8)
        optimizer.step()
    assert monitor.last_report.layers[0].too_far == pytest.approx(threshold)
    assert strict.last_report.layers[0].too_far == 0.05


def test_a_gradient_after_many_small_ones_turns_a_neuron_31_times_as_far_as_lr():
    """No step exceeds lr * sqrt((1 - beta^t) / (1 - beta)): a spike of the loss at a constant rate."""
    layer = nn.Linear(64, 4, bias=False)
    optimizer = nero.Nero(layer, lr=0.01)
    monitor = TurningMonitor(optimizer, every=1)
    torch.manual_seed(0)
    for _ in range(2000):
        layer.weight.grad = 1e-6 * torch.randn(4, 64)
        optimizer.step()
    assert monitor.last_report["weight"].angle.max < 0.02
    layer.weight.grad = torch.randn(4, 64)
    optimizer.step()
    found = monitor.last_report["weight"]
    assert found.relative_change.num == found.num_too_far == 4
    # The relative change before projection is at most 0.01 * sqrt(1000); the angle is its arc tangent.
    assert 0.25 < found.angle.max <= math.atan(0.01 * math.sqrt(1000)) * 1.01


def test_skipped_updates_are_reported_by_layer_and_in_total():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizer = nero.Nero(model)
    monitor = TurningMonitor(optimizer, every=1, max_layers=1)
    for _ in range(2):
        for param in model.parameters():
            param.grad = torch.randn_like(param)
        model[0].weight.grad[1] = math.nan
        model[1].bias.grad[:] = math.inf
        optimizer.step()
        if monitor.step == 1:
            assert monitor.last_report["0.weight"].num_skipped == 1
    assert monitor.last_report["1.weight"].num_skipped == 0
    assert monitor.last_report.num_skipped == optimizer.num_skipped == 6
    adam = torch.optim.Adam(model.parameters())
    monitor = TurningMonitor(adam)
    adam.step()
    assert monitor.last_report.num_skipped is None


def test_drift_is_measured_from_where_the_optimizer_holds_its_neurons():
    def drifts(optimizer, model, **options):
        with TurningMonitor(optimizer, model, **options) as monitor:
            train(model, optimizer, 1)
        return monitor.last_report["4.weight"]

    model = network()
    balanced = drifts(nero.Nero(model), model)
    assert max(balanced.mean_drift, balanced.norm_drift) < 1e-6
    assert balanced.is_balanced
    model = network()
    only_norm = drifts(nero.Nero(model, constraint="norm"), model)
    assert only_norm.mean_drift is None
    assert only_norm.norm_drift < 1e-6
    for make in (OPTIMIZERS["Nero, initial"], OPTIMIZERS["Balanced, initial"]):
        model = network()
        initial = drifts(make(model), model)
        assert initial.norm_drift < 1e-6
        assert initial.norm.max < 0.9
    model = network()
    adam = torch.optim.Adam(model.parameters())
    free = drifts(adam, model)
    assert (free.mean_drift, free.norm_drift, free.is_balanced) == (None, None, True)
    held = drifts(adam, model, constraint="balanced")
    assert held.norm_drift > 0.1
    assert not held.is_balanced


def test_a_neuron_that_someone_moved_is_found():
    layer = nn.Linear(8, 4, bias=False)
    optimizer = nero.Nero(layer)
    monitor = TurningMonitor(optimizer)
    with torch.no_grad():
        layer.weight[2] += 0.5
    layer.weight.grad = torch.zeros(4, 8)  # touches nothing, so nothing is repaired either
    optimizer.step()
    found = monitor.last_report["weight"]
    weight = layer.weight.detach().double()
    assert found.norm_drift == pytest.approx((weight.norm(dim=1) - 1).abs().max().item())
    wanted = (weight.sum(1).abs() / math.sqrt(8) / weight.norm(dim=1)).max().item()
    assert found.mean_drift == pytest.approx(wanted)
    assert any("off its constraint" in sentence for sentence in monitor.last_report.findings())


def test_a_layer_with_a_neuron_that_is_not_finite_is_not_balanced():
    layer = nn.Linear(8, 4, bias=False)
    optimizer = nero.Nero(layer)
    monitor = TurningMonitor(optimizer)
    with torch.no_grad():
        layer.weight[2] = math.nan
    layer.weight.grad = torch.randn(4, 8)
    optimizer.step()
    found = monitor.last_report["weight"]
    assert found.num_undefined == 1
    assert found.drift <= found.tolerance  # of the others
    assert not found.is_balanced


def test_rounding_at_a_tiny_rate_is_not_too_far():
    """Rounded at random, bfloat16 weights turn by much more than the rate, but by less than eps."""
    layer = nn.Linear(256, 16, bias=False).bfloat16()
    optimizer = nero.Nero(layer, stochastic_rounding=True)
    optimizer.param_groups[0]["lr"] = 1e-5
    monitor = TurningMonitor(optimizer, every=1)
    torch.manual_seed(0)
    for _ in range(3):
        layer.weight.grad = torch.randn(16, 256).bfloat16()
        optimizer.step()
        assert monitor.last_report["weight"].num_too_far == 0
    assert monitor.last_report["weight"].angle.max > 10 * 1e-5


def test_complex_parameters_are_left_out():
    params = [nn.Parameter(torch.randn(4, 8, dtype=dtype)) for dtype in (torch.cfloat, torch.float)]
    optimizer = torch.optim.SGD(params, lr=0.1)
    with TurningMonitor(optimizer) as monitor:
        for param in params:
            param.grad = torch.randn_like(param)
        optimizer.step()
    assert monitor.last_report.names == ["groups.0.params.1"]


def test_neurons_come_from_the_optimizer_then_the_model_then_shapes():
    model = nn.ConvTranspose1d(6, 4, 3)  # neurons along dim 1
    adam = torch.optim.Adam(model.parameters())
    groups = torch.optim.Adam(nero.param_groups(model, overrides={"weight": {"neuron_dims": (2,)}}))
    train_once = {
        "group": (groups, model, "weight", 3),
        "model": (adam, model, "weight", 4),
        "shape": (adam, None, "groups.0.params.0", 6),
    }
    for optimizer, given_model, name, num_neurons in train_once.values():
        with TurningMonitor(optimizer, given_model) as monitor:
            model(torch.randn(2, 6, 5)).square().sum().backward()
            optimizer.step()
        assert monitor.last_report[name].num_neurons == num_neurons


def test_parameters_that_come_late_freeze_or_have_no_gradient():
    model = network()
    model[4].requires_grad_(False)
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    monitor = TurningMonitor(optimizer, model, every=1)
    train(model, optimizer, 1)
    assert monitor.last_report.names == ["0.weight"]
    optimizer.add_param_group({"params": [*model[4].parameters(), *model[6].parameters()]})
    model[6].weight.grad = None
    optimizer.step()
    assert monitor.last_report.names == ["0.weight", "6.weight"]
    lost = monitor.last_report["6.weight"]
    assert lost.num_still == lost.num_zero_grad == lost.num_neurons == 4


def test_sparse_gradients():
    model = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
    with TurningMonitor(optimizer, model) as monitor:
        model(torch.tensor([1, 3])).square().sum().backward()
        optimizer.step()
    found = monitor.last_report["weight"]
    assert found.num_zero_grad == found.num_still == 8


def test_closures():
    model = nn.Linear(8, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    inputs = torch.randn(16, 8)

    def closure():
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        return loss

    with TurningMonitor(optimizer, model) as monitor:
        optimizer.step(closure)
    assert monitor.last_report["weight"].angle.max > 0


def test_a_compiled_step_is_seen_and_nothing_else_is_compiled():
    model = network()
    optimizer = nero.Nero(model, fused=False)
    monitor = TurningMonitor(optimizer, every=2, sinks=[reports := Reports()])
    graphs = []
    compiled = torch.compile(optimizer.step, backend=lambda graph, _: graphs.append(graph) or graph)
    alone = network()
    train(alone, nero.Nero(alone, fused=False), 4)
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(16, 3, 4, generator=generator)).square().mean().backward()
        compiled()
    assert len(graphs) == 1
    assert [report.step for report in reports] == [1, 3]
    assert 0 < reports[1]["4.weight"].angle.max < 0.1
    assert monitor.step == 4
    for p, q in zip(alone.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_an_optimizer_in_a_trainers_wrapper():
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def step(self):
            self.optimizer.step()

    layer = nn.Linear(4, 2)
    wrapper = Wrapper(nero.Balanced(torch.optim.SGD(layer.parameters(), lr=0.1)))
    monitor = TurningMonitor(wrapper)
    layer.weight.grad = torch.randn(2, 4)
    wrapper.step()
    assert monitor.last_report.layers[0].norm_drift < 1e-6


def test_a_layer_that_was_not_sampled_is_named():
    layer = nn.Linear(4, 2)
    optimizer = nero.Nero(layer)
    monitor = TurningMonitor(optimizer)
    layer.weight.grad = torch.randn(2, 4)
    optimizer.step()
    with pytest.raises(KeyError, match=r"'0\.weight' was not sampled at this step; \['weight'\]"):
        monitor.last_report["0.weight"]


def test_edges_of_histograms_reach_from_tiny_to_a_half_turn():
    assert Distribution.EDGES[0] == 0
    assert 1e-9 < Distribution.EDGES[1] < 1e-8
    assert Distribution.EDGES[-1] > math.pi


def test_whoever_watches_inside_balanced_is_told():
    model = network()
    inner = torch.optim.SGD(nero.param_groups(model), lr=0.1)
    nero.Balanced(inner)
    with pytest.warns(UserWarning, match="attach the monitor to Balanced"):
        TurningMonitor(inner, model)


def test_only_a_rate_that_is_an_angle_is_compared_with_angles():
    for make, is_angle in ((nero.Nero, True), (OPTIMIZERS["Adam"], False)):
        model = network()
        optimizer = make(model)
        monitor = TurningMonitor(optimizer, model, too_far=1e-9)
        train(model, optimizer, 1)
        layer = monitor.last_report["0.weight"]
        assert (layer.max_over_lr is not None) == is_angle
        assert any("x lr" in sentence for sentence in monitor.last_report.findings()) == is_angle


class FindsItsOwnRate(torch.optim.Optimizer):
    """As an Adafactor does that is given none."""

    def __init__(self, params):
        super().__init__(params, {"lr": None})

    @torch.no_grad()
    def step(self):
        for param in self.param_groups[0]["params"]:
            param.sub_(param.grad, alpha=0.1)


def test_optimizer_that_finds_its_own_rate_is_watched():
    layer = nn.Linear(4, 3)
    optimizer = FindsItsOwnRate(layer.parameters())
    with TurningMonitor(optimizer, layer, every=1) as monitor:
        layer(torch.randn(2, 4)).square().sum().backward()
        optimizer.step()
    assert monitor.last_report["weight"].angle.median > 0
    assert monitor.last_report["weight"].max_over_lr is None
