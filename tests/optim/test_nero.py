"""What Nero offers beyond the shared contract."""

import copy
import inspect
import math
import pickle
import re
import warnings
from contextlib import nullcontext
from typing import NoReturn

import numpy as np
import pytest
import torch
from torch import nn

from nero import LayoutError, Nero, Sphere, annotate, describe, param_groups
from nero.optim.checkpoint import matched_by_name
from nero_tools.optimizers import state_bytes

SWITCHED = "momentum was switched on after the optimizer was built"


@pytest.mark.parametrize("fused", [False, None])
def test_gain_penalty_is_a_term_of_the_loss(fused):
    torch.manual_seed(0)
    by_option, by_loss = (nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)) for _ in range(2))
    by_loss.load_state_dict(by_option.state_dict())
    x, penalty = torch.randn(8, 4), 0.3
    optimizers = Nero(by_option, gain_penalty=penalty, fused=fused), Nero(by_loss, fused=fused)
    for _ in range(20):
        for model, optimizer in zip((by_option, by_loss), optimizers, strict=True):
            optimizer.zero_grad()
            loss = (model(x) - 3).square().mean()
            if model is by_loss:
                loss = loss + penalty / 2 * (model[1].weight - 1).square().sum()
            loss.backward()
            optimizer.step()
    for p, q in zip(by_option.parameters(), by_loss.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_a_rate_for_adam_draws_one_hint():
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    with pytest.warns(UserWarning, match="lr=5e-05.*Adam learning rate.*use 0.01") as caught:
        optimizer = Nero(model, lr=5e-5)
    assert len(optimizer.param_groups) == 3
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_small_rates_that_were_meant_draw_no_hint():
    """Warnings are errors here: a group that hardly moves, a frozen one, and the end of a schedule."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    Nero(model, overrides=[("0.*", {"lr": 1e-6})])
    Nero(model, lr=0.0)
    optimizer = Nero(model, lr=1e-4)
    for group in optimizer.param_groups:
        group["lr"] = 1e-9
    Nero(model).load_state_dict(optimizer.state_dict())


def test_options_differ_per_group():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizer = Nero(
        model,
        overrides=[
            ("1.weight", {"constraint": Sphere(radius=2.0), "lr": 0.0}),
            ("*.bias", {"beta": 0.9}),
        ],
    )
    torch.testing.assert_close(model[1].weight.norm(dim=1), torch.full((2,), 2.0))
    before = model[1].weight.detach().clone()
    model(torch.randn(5, 4)).square().mean().backward()
    optimizer.step()
    assert torch.equal(model[1].weight, before)
    assert {g["beta"] for g in optimizer.param_groups if g["role"] == "bias"} == {0.9}


def test_describe_counts_no_state_for_frozen_parameters():
    model = nn.Linear(4, 3)
    model.weight.requires_grad_(False)
    optimizer = Nero(model)
    held = sum(t.nbytes for state in optimizer.state.values() for t in state.values())
    assert describe(model).state_bytes == held


@pytest.mark.parametrize("number", [np.float64, np.float32])
@pytest.mark.parametrize("nonfinite", ["skip", "propagate"])
def test_a_numpy_learning_rate_is_a_number(number, nonfinite):
    weights = []
    for lr in (number(0.015625), 0.015625):
        torch.manual_seed(0)
        layer = nn.Linear(4, 3)
        optimizer = Nero(layer, lr=lr, nonfinite=nonfinite)
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: number(0.5))
        layer(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        weights.append(layer.weight.detach())
    assert torch.equal(*weights)


def test_groups_do_not_share_a_tensor_learning_rate():
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    optimizer = Nero(model, lr=torch.tensor(0.01))
    fresh = Nero(model, lr=torch.tensor(0.01))
    fresh.load_state_dict(optimizer.state_dict())
    for each in (optimizer, fresh):
        for group in each.param_groups:
            group["lr"] *= 0.1
        assert [group["lr"].item() for group in each.param_groups] == [pytest.approx(0.001)] * 3


def test_compiled_by_inductor_it_takes_the_same_steps():
    torch.manual_seed(0)
    eager, compiled = (nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6)) for _ in range(2))
    compiled.load_state_dict(eager.state_dict())
    optimizers = Nero(eager), Nero(compiled, lr=torch.tensor(0.01))
    steps = optimizers[0].step, torch.compile(optimizers[1].step)
    for _ in range(20):
        for p, q in zip(eager.parameters(), compiled.parameters(), strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        for step in steps:
            step()
    for p, q in zip(eager.parameters(), compiled.parameters(), strict=True):
        # Inductor fuses multiplications and additions, and so rounds some of them once less.
        torch.testing.assert_close(p, q, rtol=0, atol=1e-6)


def resnet50():
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig(num_labels=1000))


def gpt2_124m():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config())


@pytest.mark.parametrize(
    ("build", "num_parameters"), [(resnet50, 25_557_032), (gpt2_124m, 124_439_808)]
)
def test_state_is_at_most_a_five_hundredth_of_adamws(build, num_parameters, capsys):
    model = build()
    assert sum(p.numel() for p in model.parameters()) == num_parameters
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    adamw = torch.optim.AdamW(model.parameters(), fused=True)
    adamw.step()
    adamw_bytes = state_bytes([adamw])
    del adamw
    nero_bytes = state_bytes([Nero(model)])
    with capsys.disabled():
        print(
            f"\nstate of {build.__name__}: Nero {nero_bytes:,} B, AdamW {adamw_bytes:,} B, "
            f"{nero_bytes / adamw_bytes:.4%}"
        )
    assert nero_bytes <= 0.002 * adamw_bytes
    assert nero_bytes == describe(model).state_bytes


@pytest.mark.parametrize("build", [resnet50, gpt2_124m])
@pytest.mark.parametrize(("dtype", "share"), [("float32", 0.51), ("bfloat16", 0.26)])
def test_state_with_momentum_is_a_half_or_a_quarter_of_adamws(build, dtype, share):
    with torch.device("meta"):
        model = build()
    options = {"preset": "rows", "momentum_dtype": dtype}
    described = describe(model, **options)
    assert described.state_bytes <= share * described.adam_state_bytes
    assert described.adam_state_bytes == 8 * sum(p.numel() for p in model.parameters())
    small = nn.Linear(64, 32)
    assert state_bytes([Nero(small, **options)]) == describe(small, **options).state_bytes


def test_neuron_dims_may_be_one_number():
    weight = nn.Parameter(torch.randn(8, 3))
    optimizer = Nero([{"params": [weight], "neuron_dims": 1}])
    weight.grad = torch.randn(8, 3)
    optimizer.step()
    assert torch.allclose(weight.norm(dim=0), torch.ones(3))


def rounded(groups):
    """Return bfloat16 parameters after five steps of stochastic rounding, by position."""
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(4, 50).bfloat16()) for _ in range(3)]
    grad = torch.randn(4, 50).bfloat16()
    optimizer = Nero(groups(params), stochastic_rounding=True)
    for _ in range(5):
        for param in params:
            param.grad = grad.clone()
        optimizer.step()
    return params


def test_noise_goes_by_the_position_among_all_parameters():
    together = rounded(lambda params: [{"params": params}])
    apart = rounded(lambda params: [{"params": [param]} for param in params])
    for ours, theirs in zip(together, apart, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("fused", [False, None])
def test_equal_parameters_are_rounded_by_noise_of_their_own(fused):
    params = [nn.Parameter(torch.linspace(-1, 1, 200).view(4, 50).bfloat16()) for _ in range(3)]
    groups = [{"params": params[:1]}, {"params": params[1:]}]
    optimizer = Nero(groups, stochastic_rounding=True, fused=fused)
    for param in params:
        param.grad = torch.linspace(1, -1, 200).sin().view(4, 50).bfloat16()
    optimizer.step()
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert (params[i] != params[j]).float().mean() > 0.1


def test_the_layout_of_a_checkpoint_does_not_win():
    """It comes from the model that is being trained, everything else from the checkpoint."""
    weights = [nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(5))]
    saved = Nero(
        [{"params": [w], "role": r} for w, r in zip(weights, (None, "other"), strict=True)], 0.5
    )
    present = [
        {"params": [weights[0]], "role": "embedding"},
        {"params": [weights[1]], "role": "gain"},
    ]
    optimizer = Nero(present, lr=0.1, gain_penalty=0.5)
    optimizer.load_state_dict(saved.state_dict())
    assert [group["role"] for group in optimizer.param_groups] == ["embedding", "gain"]
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.5]

    square = nn.Parameter(torch.randn(4, 4))
    by_columns = Nero([{"params": [square], "neuron_dims": (1,)}])
    with pytest.raises(ValueError, match=r"layout needs shape \(4, 1\)"):
        Nero([square]).load_state_dict(by_columns.state_dict())


@pytest.mark.parametrize("fused", [False, None])
def test_nothing_is_skipped_at_a_rate_of_zero(fused):
    layer = nn.Linear(4, 3)
    optimizer = Nero(layer, lr=0.0, fused=fused)
    for param in layer.parameters():
        param.grad = torch.full_like(param, torch.nan)
    optimizer.step()
    assert optimizer.num_skipped == 0


def test_a_checkpoint_is_matched_by_name_within_a_group():
    saved = [{"params": [0, 1, 2], "param_names": ["a", "b", "c"], "lr": 0.1}]
    present = [{"params": [], "param_names": names} for names in (["c", "a"], ["b"])]
    assert [group["params"] for group in matched_by_name(saved, present)] == [[2, 0], [1]]


def test_options_that_a_checkpoint_loses_are_told():
    """The preset polar has two groups where paper has one."""
    layers = [nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False), nn.Linear(4, 2, bias=False)]
    saved = Nero(nn.Sequential(*layers), preset="polar").state_dict()
    optimizer = Nero(nn.Sequential(*layers))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.load_state_dict(saved)
    told = [str(each.message) for each in caught]
    assert len(told) == 3
    assert "`2.weight` was saved with beta=0.95, direction='gradient', but is now in" in told[0]
    assert told[1].startswith("`2.weight` (gradient) was saved with a different direction")
    assert "saved with preset='polar', whose options replace those of preset='paper'" in told[2]
    Nero(nn.Sequential(*layers), preset="polar").load_state_dict(saved)  # warnings are errors here


def test_names_that_are_not_unique_match_nothing():
    """Two models in one optimizer: by name, both would get the averages of the second."""
    models = [nn.Linear(4, 3) for _ in range(2)]
    groups = [group for model in models for group in param_groups(model)]
    optimizer = Nero(groups)
    for scale, model in enumerate(models, start=1):
        for param in model.parameters():
            param.grad = torch.full_like(param, scale)
    optimizer.step()
    fresh = Nero(groups)
    fresh.load_state_dict(optimizer.state_dict())
    for model in models:
        for param in model.parameters():
            kept, loaded = (each.state[param]["exp_avg_norm"] for each in (optimizer, fresh))
            assert torch.equal(kept, loaded)


def stepped(**options):
    """Return a network and its optimizer after a step, with options set in a group since."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    optimizer = Nero(model)
    model(torch.randn(2, 4)).square().sum().backward()
    optimizer.step()
    optimizer.param_groups[1] |= options
    return model, optimizer


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"weight_decay": 0.1},
            ValueError,
            r"weight_decay must be 0 but is 0\.1 in the group of 0\.bias",
        ),
        ({"lr": -0.1}, ValueError, r"Invalid learning rate: -0\.1"),
        ({"lr": "0.1"}, TypeError, "lr must be a number, not '0.1'"),
        ({"lr": torch.tensor(float("nan"))}, ValueError, "Invalid learning rate: nan"),
        ({"fused": "yes"}, TypeError, "fused must be True or False, not 'yes'"),
        ({"beta": 2.0}, ValueError, "Invalid beta"),
    ],
    ids=str,
)
def test_what_is_set_in_a_group_later_is_heard_at_the_next_step(options, error, message):
    model, optimizer = stepped(**options)
    before = copy.deepcopy(model.state_dict())
    good = {key: value for key, value in optimizer.defaults.items() if key in options}
    with pytest.raises(error, match=message):
        optimizer.step()
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    optimizer.param_groups[1] |= good
    optimizer.step()


def test_a_checkpoint_with_weight_decay_says_why_it_does_not_load():
    _, optimizer = stepped(weight_decay=0.1)
    _, fresh = stepped()
    with pytest.raises(ValueError, match=r"weight_decay must be 0 but is 0\.1.*set it to 0"):
        fresh.load_state_dict(optimizer.state_dict())
    optimizer.param_groups[1]["weight_decay"] = 0.0
    fresh.load_state_dict(optimizer.state_dict())


def test_a_mistyped_option_is_an_error_to_type_checkers_too():
    annotation = inspect.signature(Nero).parameters["unknown"].annotation
    assert annotation is NoReturn


@pytest.mark.parametrize("option", [{"lr": -1.0}, {"weight_decay": 0.1}, {"fused": "yes"}], ids=str)
def test_bad_options_of_a_checkpoint_are_refused(option):
    layer = nn.Linear(4, 3)
    optimizer = Nero(layer)
    saved = optimizer.state_dict()
    saved["param_groups"][0] |= option
    before = copy.deepcopy(optimizer.param_groups)
    with pytest.raises((TypeError, ValueError), match=f"{next(iter(option))}|learning rate"):
        optimizer.load_state_dict(saved)
    for group, old in zip(optimizer.param_groups, before, strict=True):
        assert {k: group[k] for k in option} == {k: old[k] for k in option}


_AVERAGES = ("bfloat16", "float32")


class TestMomentum:
    def test_the_first_step_turns_by_the_rate(self):
        """The average starts at zero, and so does its norm: nothing needs correcting."""
        weight = nn.Parameter(torch.randn(3, 50, dtype=torch.float64))
        optimizer = Nero([weight], lr=0.02, momentum=0.9)
        before = weight.detach().clone()
        weight.grad = torch.randn_like(weight)
        weight.grad -= weight.grad.mean(1, keepdim=True)
        weight.grad -= (weight.grad * before).sum(1, keepdim=True) * before
        optimizer.step()
        angle = torch.arccos((weight.detach() * before).sum(1))
        assert angle.tolist() == pytest.approx([math.atan(0.02)] * 3, rel=1e-9)

    @pytest.mark.parametrize("fused", [False, None])
    def test_it_can_be_switched_on_and_off(self, fused):
        weight, other = (nn.Parameter(torch.randn(4, 6)) for _ in range(2))
        optimizer = Nero([weight, other], lr=0.1, fused=fused)
        for momentum in (0.0, 0.9, 0.0, 0.9):
            optimizer.param_groups[0]["momentum"] = momentum
            for param in (weight, other):
                param.grad = torch.randn_like(param)
            with pytest.warns(UserWarning, match=SWITCHED) if momentum else nullcontext() as caught:
                optimizer.step()
            assert not momentum or len(caught) == 1
            has_average = "exp_avg" in optimizer.state[weight]
            assert has_average == (momentum > 0)
        assert list(optimizer.state[weight]) == ["step", "num_skipped", "exp_avg", "exp_avg_norm"]
        assert optimizer.state[weight]["exp_avg"].any()

    @pytest.mark.parametrize("fused", [False, None])
    def test_a_neuron_that_stays_averages_its_gradient(self, fused):
        """A constant row along a constant gradient has nowhere to go."""
        weight = nn.Parameter(torch.full((2, 6), 0.5))
        group = {"params": [weight], "role": "neuron"}
        optimizer = Nero([group], momentum=0.9, fused=fused)
        for _ in range(2):
            weight.grad = torch.ones_like(weight)
            optimizer.step()
        assert torch.equal(weight.detach(), torch.full((2, 6), 0.5))
        torch.testing.assert_close(optimizer.state[weight]["exp_avg"], torch.full((2, 6), 0.19))

    @pytest.mark.parametrize("fused", [False, None])
    def test_an_average_that_fades_becomes_zero(self, fused):
        weight = nn.Parameter(torch.randn(3, 6))
        optimizer = Nero([weight], momentum=0.9, beta=0.9, nonfinite="propagate", fused=fused)
        for step in range(1200):
            weight.grad = torch.randn_like(weight) * (step < 3)
            optimizer.step()
        assert not optimizer.state[weight]["exp_avg"].any()
        assert weight.isfinite().all()

    @pytest.mark.parametrize("fused", [False, None])
    def test_options_that_swap_their_state_are_heard(self, fused):
        weight = nn.Parameter(torch.randn(3, 6))
        optimizer = Nero([weight], momentum=0.9, fused=fused)
        optimizer.param_groups[0].update(momentum=0.0, constraint="initial")
        weight.grad = torch.randn_like(weight)
        with pytest.raises(ValueError, match="need radius"):
            optimizer.step()
        other = Nero([weight], constraint="initial", fused=fused)
        other.param_groups[0].update(momentum=0.9, constraint="balanced")
        with pytest.warns(UserWarning, match=SWITCHED):
            other.step()
        assert other.state[weight]["exp_avg"].any()
        assert weight.detach().norm(dim=1).tolist() == pytest.approx([1.0] * 3)

    def test_a_checkpoint_in_another_memory_order_keeps_the_kernel(self):
        conv = nn.Conv2d(4, 3, 3, bias=False).to(memory_format=torch.channels_last)
        plain = nn.Conv2d(4, 3, 3, bias=False)
        plain.weight.grad = torch.randn_like(plain.weight)
        saved = Nero(plain, momentum=0.9)
        saved.step()
        optimizer = Nero(conv, momentum=0.9)
        optimizer.load_state_dict(saved.state_dict())
        state = optimizer.state[conv.weight]["exp_avg"]
        assert state.stride() == conv.weight.stride()
        assert torch.equal(state, saved.state[plain.weight]["exp_avg"])

    def test_a_checkpoint_of_another_dtype_loads_into_it(self):
        model = nn.Linear(6, 4)
        half, full = (Nero(model, momentum=0.9, momentum_dtype=dtype) for dtype in _AVERAGES)
        for optimizer, other in ((half, full), (full, half)):
            for param in model.parameters():
                param.grad = torch.randn_like(param)
            optimizer.step()
            other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            kind = optimizer.param_groups[0]["momentum_dtype"]
            assert other.param_groups[0]["momentum_dtype"] == kind
            ours, theirs = (each.state[model.weight]["exp_avg"] for each in (optimizer, other))
            assert ours.dtype == theirs.dtype == getattr(torch, kind)
            assert torch.equal(ours, theirs)

    @pytest.mark.parametrize("fused", [False, None])
    @pytest.mark.parametrize("shape", [(4, 50), (200,)], ids=str)
    def test_bfloat16_is_right_on_average(self, shape, fused):
        """Rounded to nearest, an average would stop short of a gradient that is a little larger."""
        params = [nn.Parameter(torch.randn(shape)) for _ in range(40)]
        optimizer = Nero(params, momentum=0.99, momentum_dtype="bfloat16", fused=fused)
        grad = torch.randn(shape)
        average = torch.zeros(shape)
        for _ in range(60):
            for param in params:
                param.grad = grad.clone()
            optimizer.step()
            average = 0.99 * average + 0.01 * grad
        found = torch.stack([optimizer.state[p]["exp_avg"].double() for p in params])
        assert optimizer.state[params[0]]["exp_avg"].dtype == torch.bfloat16
        # Its spread is about a spacing of bfloat16, 0.4%: four standard errors of 8,000 draws.
        relative = (found / average).mean().item() - 1
        assert abs(relative) < 4 * 0.01 / math.sqrt(8000)
        assert 1e-4 < (found / average).std() < 0.02

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
    def test_the_kernel_rounds_averages_as_the_plain_backend_does(self, dtype):
        averages = []
        for fused in (False, None):
            torch.manual_seed(0)
            params = [torch.randn(s, dtype=dtype) for s in [(7, 300), (40, 9), (9,), (3, 4, 5)]]
            groups = [{"params": [nn.Parameter(p)]} for p in params]
            groups[1]["neuron_dims"] = (1,)
            groups[3]["neuron_dims"] = (0, 2)
            options = {"momentum": 0.9, "momentum_dtype": torch.bfloat16, "seed": 3}
            optimizer = Nero(groups, fused=fused, **options)
            for step in range(4):
                for group in groups:
                    (param,) = group["params"]
                    param.grad = torch.randn_like(param)
                    if param.ndim == 2 and step == 2:
                        param.grad[1] = math.nan
                optimizer.step()
            averages.append([optimizer.state[g["params"][0]]["exp_avg"] for g in groups])
        for ours, theirs in zip(*averages, strict=True):
            assert ours.dtype == theirs.dtype == torch.bfloat16
            # A float32 that is rounded the other way before changes one in some thousands.
            assert (ours != theirs).float().mean() < 0.005

    def test_an_older_checkpoint_loads_into_it(self):
        model = nn.Linear(6, 4)
        old = Nero(model).state_dict()
        for group in old["param_groups"]:
            del group["momentum"], group["preset"]
        optimizer = Nero(model, momentum=0.9)
        optimizer.load_state_dict(old)
        assert optimizer.param_groups[0]["momentum"] == 0.9
        model(torch.randn(3, 6)).sum().backward()
        optimizer.step()

    @pytest.mark.parametrize("momentum", [0.0, 0.9])
    def test_one_cycle_turns_it_with_the_rate(self, momentum):
        """Where there was none, the state grows to one number per weight: that is said once."""
        model = nn.Linear(6, 4)
        optimizer = Nero(model, momentum=momentum)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=4)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.randn(3, 6)).square().sum().backward()
                optimizer.step()
                scheduler.step()
        assert optimizer.param_groups[0]["momentum"] > 0.8
        told = [str(each.message) for each in caught]
        assert len(told) == (momentum == 0)
        assert all(re.search(f"{SWITCHED}.*`weight`.*cycle_momentum=False", text) for text in told)

    def test_one_cycle_can_leave_it_off(self):
        model = nn.Linear(6, 4)
        optimizer = Nero(model)
        torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=0.1, total_steps=4, cycle_momentum=False
        )
        model(torch.randn(3, 6)).square().sum().backward()
        optimizer.step()  # warnings are errors here
        assert "exp_avg" not in optimizer.state[model.weight]


class TestPresets:
    def model(self):
        return nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 3))

    def test_rows(self):
        model = self.model()
        optimizer = Nero(model, preset="rows")
        by_role = {group["role"]: group for group in optimizer.param_groups}
        assert by_role["neuron"]["lr"] == 0.03
        assert by_role["neuron"]["momentum"] == 0.9
        assert by_role["neuron"]["constraint"] == Sphere()
        assert by_role["embedding"]["constraint"] == Sphere(radius="sqrt_dim")
        assert model[0].weight.detach().norm(dim=1).tolist() == pytest.approx([4.0] * 10)
        assert "preset='rows'" in repr(optimizer)

    def test_what_is_given_wins(self):
        model = self.model()
        optimizer = Nero(model, 0.01, preset="rows", momentum=0.0, constraint="balanced")
        for group in optimizer.param_groups:
            assert (group["lr"], group["momentum"]) == (0.01, 0.0)
            assert group["constraint"] == Sphere()
        overrides = {"role=embedding": {"constraint": "norm"}}
        optimizer = Nero(self.model(), preset="rows", overrides=overrides)
        assert optimizer.param_groups[0]["constraint"] == Sphere(centre=False)

    def test_the_length_of_a_run_belongs_to_the_schedule(self):
        with pytest.raises(TypeError, match=r"'num_steps': pass it to nero\.cosine_schedule"):
            Nero(self.model(), preset="polar", num_steps=100)

    def test_an_embedding_that_is_the_output_layer_too_keeps_norm_one(self):
        model = nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 10, bias=False))
        model[1].weight = model[0].weight
        (group,) = Nero(model, preset="rows").param_groups
        assert (group["role"], group["constraint"]) == ("neuron", Sphere())

    def test_it_is_for_the_whole_optimizer(self):
        with pytest.raises(ValueError, match="apply to the whole optimizer"):
            Nero(self.model(), overrides={"*": {"preset": "rows"}})

    def test_a_pickle_keeps_it(self):
        optimizer = pickle.loads(pickle.dumps(Nero(self.model(), preset="rows")))
        optimizer.add_param_group(
            {"params": [nn.Parameter(torch.randn(4, 9))], "role": "embedding"}
        )
        assert optimizer.param_groups[-1]["constraint"] == Sphere(radius="sqrt_dim")

    def test_a_role_is_no_name(self):
        model = self.model()
        with pytest.raises(LayoutError, match="matches no parameter"):
            Nero(model, overrides={"*embedding*": {"lr": 0.1}})
        with pytest.raises(LayoutError, match="the roles are: embedding, neuron, output, bias"):
            Nero(model, overrides={"role=gain": {"lr": 0.1}})

    def test_bare_parameters_have_it_too(self):
        params = [*annotate(self.model()).parameters()]
        optimizer = Nero(params, preset="rows")
        assert optimizer.param_groups[0]["constraint"] == Sphere(radius="sqrt_dim")

    def test_describe_shows_it(self):
        rows = {row.name: row for row in describe(self.model(), preset="rows").rows}
        assert rows["0.weight"].constraint == "mean 0, norm 4"
        assert rows["0.weight"].state_bytes == 10 * 16 * 4 + 10 * 4 + 16
        rows = {row.name: row for row in describe(self.model()).rows}
        assert rows["0.weight"].constraint == "mean 0, norm 1"
