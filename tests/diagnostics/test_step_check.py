"""Does the check name what is wrong with a step, and stay quiet about what is right?"""

import copy

import pytest
import torch
from torch import nn

import nero
from nero import Nero
from nero.core.spec import Hyper
from nero.diagnostics import StepCheck, StepError
from nero.diagnostics.definition import Memory, largest_turn, next_rows


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(11, 8, padding_idx=0)
        self.conv = nn.Conv1d(8, 6, 3, padding=1)
        self.up = nn.ConvTranspose1d(6, 8, 3, padding=1, groups=2)
        self.norm = nn.LayerNorm(8)
        self.square = nn.Linear(8, 8)
        self.unused = nn.Linear(8, 3)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens):
        x = self.tokens(tokens)
        x = x + self.up(self.conv(x.transpose(1, 2)).relu()).transpose(1, 2)
        return self.head(self.square(self.norm(x)).relu())


def network(seed=0):
    torch.manual_seed(seed)
    return Network()


def backward(model, optimizer):
    optimizer.zero_grad()
    tokens, targets = torch.randint(11, (4, 5)), torch.randint(11, (20,))
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), targets)
    loss.backward()
    return loss


def checked_steps(model, optimizer, check, num_steps=4):
    for _ in range(num_steps):
        backward(model, optimizer)
        with check:
            optimizer.step()
    return check.report


QUIET = {
    "paper": {},
    "rows": {"preset": "rows"},
    "polar": {"preset": "polar"},
    "momentum": {"momentum": 0.9},
    "bfloat16 momentum": {"preset": "rows", "momentum_dtype": "bfloat16"},
    "peak": {"norm": "peak", "beta": 0.95},
    "rms of the last gradient": {"beta": 0.0},
    "initial": {"constraint": "initial"},
    "mean": {"constraint": "mean"},
    "norm": {"constraint": "norm"},
    "none": {"constraint": "none", "lr": 0.1},
    "gain penalty": {"gain_penalty": 0.1},
    "maximize": {"maximize": True},
    "biases from zero": {"bias_scale": 0.3},
    "no step": {"lr": 0.0},
    "plain": {"preset": "rows", "fused": False},
    "overrides": {"overrides": {"head.*": {"lr": 0.02}, "role=embedding": {"constraint": "norm"}}},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", QUIET)
def test_is_quiet(name, dtype):
    model = network().to(dtype)
    optimizer = Nero(model, **QUIET[name])
    check = StepCheck(model, optimizer, overrides=QUIET[name].get("overrides", ()))
    report = checked_steps(model, optimizer, check)
    assert report
    assert not report.bounds_only
    assert report.num_neurons == 11 + 6 + 8 + 8 + 3 + 11


def test_is_quiet_with_stochastic_rounding():
    model = network().bfloat16()
    optimizer = Nero(model, lr=1e-3, stochastic_rounding=True)
    assert checked_steps(model, optimizer, StepCheck(model, optimizer))


def test_is_quiet_with_ties_frozen_layers_and_missing_gradients():
    model = network()
    model.head = nn.Linear(8, 11, bias=False)
    model.head.weight = model.tokens.weight
    model.conv.requires_grad_(False)
    optimizer = Nero(model, preset="rows")
    report = checked_steps(model, optimizer, StepCheck(model, optimizer))
    assert report.num_params == len([*model.parameters()])


def test_is_quiet_about_gradients_that_are_zero_or_not_finite():
    model = network()
    optimizer = Nero(model, preset="rows")
    check = StepCheck(model, optimizer)
    for step in range(5):
        backward(model, optimizer)
        if step == 2:
            model.square.weight.grad[3] = torch.nan
        with check:
            optimizer.step()
    assert check.report.bounds_only == ()
    model.square.weight.grad.zero_()
    with check:
        optimizer.step()


def test_is_quiet_with_a_schedule_and_other_optimizers():
    model = network()
    body = [p for n, p in model.named_parameters() if not n.startswith("head")]
    optimizer = Nero(nero.annotate(model) and body)
    other = torch.optim.AdamW(model.head.parameters())
    schedule = nero.cosine_schedule(optimizer, 10)
    check = StepCheck(model, optimizer)
    for _ in range(5):
        backward(model, optimizer)
        with check:
            optimizer.step()
            other.step()
        schedule.step()
    assert check.report.num_params == len(body)


def test_goes_on_from_the_state_of_an_optimizer_that_has_stepped():
    model = network()
    optimizer = Nero(model, preset="rows")
    for _ in range(3):
        backward(model, optimizer)
        optimizer.step()
    check = StepCheck(model, optimizer)
    assert not checked_steps(model, optimizer, check, 1).bounds_only
    backward(model, optimizer)
    optimizer.step()  # not checked
    assert checked_steps(model, optimizer, check, 2)


def test_takes_the_layout_of_unregistered_modules_from_the_optimizer_and_says_so():
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Parameter(torch.randn(6, 5))

        def forward(self, x):
            return x @ self.mix

    torch.manual_seed(0)
    model = Mixer()
    optimizer = Nero(model, example=torch.randn(3, 6))
    check = StepCheck(model, optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(3, 6)).square().mean().backward()
        with check:
            optimizer.step()
    assert check.report.assumed == ("mix",)
    assert "Layout taken from the optimizer, since no module states it: `mix`" in str(check.report)


# --- set-ups that are broken on purpose: each returns what to check, and what goes wrong at a step ---


def wrong_layout(model):
    optimizer = Nero(model, overrides={"square.weight": {"neuron_dims": (1,)}})
    return optimizer, optimizer.step


def flattened_parameters(model):
    """As under DeepSpeed: a vector stands for the weights of a group, and each number is a neuron."""
    optimizer = Nero([*nero.annotate(model).parameters()])
    optimizer._shapes.check = lambda *_: None  # which refuses it
    members = [group["params"] for group in optimizer.param_groups]
    for group, params in zip(optimizer.param_groups, members, strict=True):
        flat = nn.Parameter(torch.cat([p.detach().flatten() for p in params]))
        group["params"] = [flat]
        if group["neuron_dims"]:  # a ConvTranspose's would not fit
            group |= {"neuron_dims": (0,), "num_groups": 1}

    @torch.no_grad()
    def step():
        for group, params in zip(optimizer.param_groups, members, strict=True):
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
            group["params"][0].grad = torch.cat([grad.flatten() for grad in grads])
        optimizer.step()
        for group, params in zip(optimizer.param_groups, members, strict=True):
            parts = group["params"][0].split([p.numel() for p in params])
            torch._foreach_copy_(params, [v.view_as(p) for p, v in zip(params, parts, strict=True)])

    return optimizer, step


def stale_marks(model):
    """Marks of another architecture that used the same parameter, in a list for a trainer."""
    nero.annotate(model, overrides={"square.weight": {"neuron_dims": (1,)}})
    optimizer = Nero([*model.parameters()])
    return optimizer, optimizer.step


def constraint_lost_by_a_copy(model):
    optimizer = Nero(model)
    model.load_state_dict(network(1).state_dict())
    return optimizer, optimizer.step


def optimizer_of_a_copy(model):
    optimizer = Nero(model)
    twin = Nero(copy.deepcopy(model))
    twin.param_groups[0]["params"][0].grad = None
    return twin, optimizer.zero_grad


def swapped_gradients(model):
    optimizer = Nero(model)

    def step():
        model.square.weight.grad = model.square.weight.grad.flip(0)
        optimizer.step()

    return optimizer, step


def step_skipped(model):
    optimizer = Nero(model)
    return optimizer, lambda: None


def other_rate_for_a_role(model):
    optimizer = Nero(model)

    def step():
        group = next(g for g in optimizer.param_groups if g["role"] == "embedding")
        lr, group["lr"] = group["lr"], 0.5 * group["lr"]
        optimizer.step()
        group["lr"] = lr

    return optimizer, step


def options_of_another_role(model):
    """As a universal checkpoint of ZeRO-3 does: the options of group 0 are written over those of all."""
    optimizer = Nero(model, preset="rows")
    first = next(g for g in optimizer.param_groups if g["role"] == "neuron")
    for group in optimizer.param_groups:
        if group["role"] == "embedding":
            group["beta"] = first["beta"]
    return optimizer, optimizer.step


def momentum_dropped(model):
    optimizer = Nero(model, momentum=0.9)

    def step():
        for state in optimizer.state.values():
            state["exp_avg"].zero_()
        optimizer.step()

    return optimizer, step


def state_forgotten(model):
    optimizer = Nero(model, momentum=0.9)

    def step():
        optimizer.step()
        for state in optimizer.state.values():
            state["step"].zero_()
            state["exp_avg_norm"].zero_()

    return optimizer, step


def weights_written_between_steps(model):
    """An average of weights, say, that is swapped in and only roughly swapped out."""
    optimizer = Nero(model)

    def step():
        optimizer.step()
        torch.manual_seed(0)

    def between():
        with torch.no_grad():
            model.square.weight.copy_(model.square.weight.flip(0))

    return optimizer, step, between


def weights_rounded_away(model):
    model.bfloat16()
    optimizer = Nero(model, lr=1e-4)
    return optimizer, optimizer.step


def plain_direction_for_polar(model):
    optimizer = Nero(model, preset="polar")
    plain = Nero(model, preset="rows", lr=optimizer.defaults["lr"])
    return optimizer, plain.step


def gradient_direction_in_a_group(model):
    optimizer = Nero(model, preset="polar")
    for group in optimizer.param_groups:
        group["direction"] = "gradient"
    return optimizer, optimizer.step


def weights_decayed_after_the_step(model):
    optimizer = Nero(model, constraint="none")

    def step():
        optimizer.step()
        with torch.no_grad():
            model.unused.weight.mul_(0.9)

    return optimizer, step


def step_too_long(model):
    optimizer = Nero(model, constraint="none", norm="peak")

    def step():
        before = model.head.weight.detach().clone()
        optimizer.step()
        with torch.no_grad():
            model.head.weight += 3 * (model.head.weight - before)

    return optimizer, step


BROKEN = {
    wrong_layout: {("square.weight", "layout"), ("square.weight", "off")},
    flattened_parameters: {("square.weight", "off"), ("square.weight", "wrong")},
    stale_marks: {("square.weight", "layout"), ("square.weight", "off")},
    constraint_lost_by_a_copy: {("square.weight", "off before")},
    optimizer_of_a_copy: {("square.weight", "still")},
    swapped_gradients: {("square.weight", "wrong")},
    step_skipped: {("square.weight", "still"), ("norm.bias", "still")},
    other_rate_for_a_role: {("tokens.weight", "wrong")},
    options_of_another_role: {("tokens.weight", "options")},
    momentum_dropped: {("square.weight", "wrong"), ("tokens.weight", "wrong")},
    state_forgotten: {("square.weight", "forgot")},
    weights_written_between_steps: {("square.weight", "written")},
    weights_rounded_away: {("square.weight", "lost")},
    plain_direction_for_polar: {("square.weight", "wrong"), ("conv.weight", "wrong")},
    gradient_direction_in_a_group: {("square.weight", "options")},
    weights_decayed_after_the_step: {("unused.weight", "moved")},
    step_too_long: {("head.weight", "far"), ("head.weight", "wrong")},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("broken", BROKEN, ids=lambda f: f.__name__)
def test_finds(broken):
    model = network()
    optimizer, step, *between = broken(model)
    check = StepCheck(model, optimizer)

    def some_steps():
        for _ in range(3):
            backward(model, optimizer)
            model.unused.weight.grad = None
            with check:
                step()
            for write in between:
                write()

    with pytest.raises(StepError) as caught:
        some_steps()
    report = caught.value.report
    assert report is check.report
    found = {(fault.name, fault.kind) for fault in report.faults}
    assert found >= BROKEN[broken], str(report)
    for name, _ in BROKEN[broken]:
        assert f"`{name}`" in str(caught.value)
    # Layers that have nothing to do with it are not named.
    if len({name for name, _ in BROKEN[broken]}) == 1 and len(found) < 5:
        assert {name for name, _ in found} == {name for name, _ in BROKEN[broken]}


def test_messages_say_what_to_do():
    model = network()
    optimizer = Nero(model, overrides={"square.weight": {"neuron_dims": (1,)}})
    backward(model, optimizer)
    with (
        pytest.raises(
            StepError, match=r"updates it as neurons along dims \(1,\) instead of .* \(Linear\)"
        ),
        StepCheck(model, optimizer),
    ):
        optimizer.step()


def test_biases_move_instead_of_turning_and_one_neuron_is_no_plural():
    model = network()
    optimizer = Nero(model)
    backward(model, optimizer)
    message = r"`square.bias`: 1 element moved by up to \S+ times its scale, but this learning rate"
    with (
        pytest.raises(StepError, match=message),
        StepCheck(model, optimizer),
        torch.no_grad(),
    ):
        model.square.bias[3] += optimizer.step() or 1


def test_changes_nothing():
    results = []
    for is_checked in (False, True):
        model = network()
        optimizer = Nero(model, preset="polar")
        check = StepCheck(nero.annotate(model), optimizer)
        for step in range(3):
            torch.manual_seed(step)
            backward(model, optimizer)
            if is_checked:
                with check:
                    optimizer.step()
            else:
                optimizer.step()
        results.append(model)
    for one, other in zip(*(m.parameters() for m in results), strict=True):
        assert torch.equal(one, other)
        assert one.grad is None or torch.equal(one.grad, other.grad)
        assert hasattr(other, "_nero_mark")


def test_wrong_uses():
    model = network()
    with pytest.raises(TypeError, match="model must be"):
        StepCheck(model.parameters(), Nero(model))
    with pytest.raises(TypeError, match="checks only Nero's steps"):
        StepCheck(model, torch.optim.SGD(model.parameters()))
    with pytest.raises(RuntimeError, match="no parameter that Nero trains has a gradient"):
        StepCheck(model, Nero(model)).__enter__()
    optimizer = Nero(model)
    backward(model, optimizer)
    with (
        pytest.raises(KeyError),
        StepCheck(model, optimizer) as check,
    ):  # errors inside pass through
        raise KeyError
    assert check.report is None


@pytest.mark.parametrize("norm", ["rms", "peak"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_bound_holds_and_is_reached(norm, momentum):
    """Of one neuron that is idle for long, and then gets a gradient: the worst case of a mean square."""
    hyper = Hyper(beta=0.99, norm=norm, momentum=momentum, constraint=nero.UNCONSTRAINED)
    average = torch.zeros(1, 3, dtype=torch.float64) if momentum else None
    memory = Memory(0, torch.zeros(1, 1, dtype=torch.float64), average, None, None)
    w = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    for step in range(1, 60):
        g = torch.tensor([[0.0, float(step > 50), 0.0]], dtype=torch.float64)
        new = next_rows(memory, w, g, hyper, 0.01, 1, torch.device("cpu"))
        turn = torch.atan2(new[0, 1], new[0, 0]).abs().item()
        limit = largest_turn(hyper, 0.01, step)
        assert turn <= limit
        if step == 51:
            assert turn > 0.99 * limit
