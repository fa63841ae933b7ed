"""NaN and inf in gradients and weights: who is skipped, what is kept, and how far neurons turn later."""

import copy
import math

import pytest
import torch
from torch import nn

from nero import Nero, Sphere
from nero.diagnostics import turning_angle

PRESETS = [{"preset": "paper"}, {"preset": "rows"}, {"preset": "polar"}]
ROWS = {"role": "neuron", "neuron_dims": (0,)}


def rows(num=8, fan_in=64, **options):
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(num, fan_in))
    return weight, Nero([{"params": [weight], **ROWS}], **options)


def step(weight, optimizer, grad):
    """Step, and return how far each neuron turned, in learning rates."""
    old = weight.detach().clone()
    weight.grad = grad
    optimizer.step()
    lr = optimizer.param_groups[0]["lr"]
    return turning_angle(old, weight.detach(), fan_in_dims=(1,)).flatten() / lr


def late(first, num_steps, **options):
    """Return the turns at the first finite gradients of neuron 0, after ``num_steps`` of ``first``."""
    weight, optimizer = rows(**options)
    for _ in range(num_steps):
        grad = torch.randn(8, 64)
        grad[0] = first
        step(weight, optimizer, grad)
    return [step(weight, optimizer, torch.randn(8, 64)) for _ in range(5)]


class TestTurnsAfterSkippedSteps:
    @pytest.mark.parametrize("options", PRESETS, ids=lambda options: options["preset"])
    @pytest.mark.parametrize("num_steps", [1, 10, 300])
    @pytest.mark.parametrize("bad", [math.nan, -math.inf])
    def test_a_neuron_that_was_skipped_from_the_start_turns_by_lr(self, bad, num_steps, options):
        turns = late(bad, num_steps, **options)
        assert turns[0][0] <= 1 + 1e-4, "the first finite gradient"
        assert turns[0][0] > 0.9, "and no less: the average is that of one gradient"
        # Lengths of gradients differ by a tenth, and with momentum directions grow for some steps, as they
        # do from the start: nothing like the root of the steps that were missed.
        assert max(turn[0] for turn in turns) < 1.3

    @pytest.mark.parametrize("num_steps", [10, 300])
    def test_an_idle_neuron_follows_algorithm_1(self, num_steps):
        # The paper's average decays with gradients of zero, and is corrected by the parameter's step.
        turn = late(0.0, num_steps, preset="paper")[0][0]
        expected = math.sqrt((1 - 0.999 ** (num_steps + 1)) / (1 - 0.999))
        assert turn == pytest.approx(expected, rel=0.05)

    @pytest.mark.parametrize("options", PRESETS, ids=lambda options: options["preset"])
    def test_a_short_first_gradient_does_not_speak_for_the_steps_that_were_missed(self, options):
        weight, optimizer = rows(**options)
        for i in range(102):
            grad = torch.randn(8, 64)
            grad[0] = 1e-3 * grad[0] if i == 0 else math.nan
            step(weight, optimizer, grad)
        turns = [step(weight, optimizer, torch.randn(8, 64))[0] for _ in range(5)]
        assert turns[0] <= 1 + 1e-4
        assert max(turns) < 1.3

    def test_zero_gradients_in_between_do_not_end_the_wait(self):
        weight, optimizer = rows()
        for i in range(40):
            grad = torch.randn(8, 64)
            grad[0] = 0.0 if i % 2 else math.nan
            step(weight, optimizer, grad)
        assert step(weight, optimizer, torch.randn(8, 64))[0] <= 1 + 1e-4

    def test_elements_too(self):
        bias = nn.Parameter(torch.ones(4))
        optimizer = Nero([bias])
        for _ in range(20):
            bias.grad = torch.tensor([1.0, math.nan, 0.0, 1.0])
            optimizer.step()
        before = bias.detach().clone()
        bias.grad = torch.ones(4)
        optimizer.step()
        moved = (before - bias.detach()) / 0.01
        torch.testing.assert_close(moved, torch.tensor([1.0, 1.0, 4.56, 1.0]), rtol=1e-2, atol=0)

    @pytest.mark.parametrize("beta", [0.0, 0.9, 0.999])
    def test_the_corrected_average_stays(self, beta):
        weight, optimizer = rows(beta=beta)
        for _ in range(3):
            step(weight, optimizer, torch.randn(8, 64))
        average = optimizer.state[weight]["exp_avg_norm"].clone()
        for _ in range(50):
            step(weight, optimizer, torch.full((8, 64), math.nan))
        now = optimizer.state[weight]["exp_avg_norm"]
        growth = math.sqrt((1 - beta**53) / (1 - beta**3))
        # rounded to float32 once per step
        torch.testing.assert_close(now.abs(), growth * average, rtol=50 * 6e-8, atol=0)
        assert optimizer.num_skipped == 8 * 50

    def test_the_rule_ends_with_a_gradient_no_longer_than_the_average(self):
        weight, optimizer = rows()
        for scale in (1.0, 1.0, math.nan, 2.0, 0.1):
            step(weight, optimizer, scale * torch.randn(8, 64))
            is_behind = torch.signbit(optimizer.state[weight]["exp_avg_norm"])
            assert is_behind.all() if scale in (2.0, math.nan) else not is_behind.any()
        # From here on Algorithm 1: a gradient longer than its average turns by more than lr.
        assert step(weight, optimizer, 10 * torch.randn(8, 64)).min() > 2

    def test_averages_that_nearly_overflow_stay_finite(self):
        weight, optimizer = rows(beta=0.9)
        step(weight, optimizer, torch.full((8, 64), 1e38).mul(torch.randn(8, 64).sign()))
        for _ in range(30):
            step(weight, optimizer, torch.full((8, 64), math.inf))
        assert torch.isfinite(optimizer.state[weight]["exp_avg_norm"]).all()

    def test_steps_at_lr_zero_mark_nobody(self):
        weight, optimizer = rows()
        optimizer.param_groups[0]["lr"] = 0.0
        weight.grad = torch.full((8, 64), math.nan)
        optimizer.step()
        assert not torch.signbit(optimizer.state[weight]["exp_avg_norm"]).any()

    def test_a_checkpoint_knows_who_has_missed_steps(self):
        weight, optimizer = rows()
        for _ in range(30):
            grad = torch.randn(8, 64)
            grad[0] = math.nan
            step(weight, optimizer, grad)
        other, resumed = rows()
        other.data.copy_(weight.detach())
        resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        grad = torch.randn(8, 64)
        assert step(other, resumed, grad)[0] <= 1 + 1e-4
        step(weight, optimizer, grad)
        assert torch.equal(other, weight)


class TestPropagate:
    BAD = (math.inf, -math.inf, math.nan)

    @pytest.mark.parametrize("momentum", [0.0, 0.9])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    def test_nan_and_inf_are_where_the_plain_backend_has_them(self, dtype, momentum):
        torch.manual_seed(0)
        drawn = torch.randn(5, 6), torch.randn(5)
        made = []
        for fused in (None, False):
            params = [nn.Parameter(each.to(dtype)) for each in drawn]
            groups = [{"params": params[:1], **ROWS}, {"params": params[1:], "role": "bias"}]
            made.append(
                (params, Nero(groups, fused=fused, nonfinite="propagate", momentum=momentum))
            )
        for i in range(4):
            grads = [torch.randn(5, 6).to(dtype), torch.randn(5).to(dtype)]
            if i == 1:  # one bad value a row, and in one row both signs of inf
                for j, bad in enumerate(self.BAD):
                    grads[0][j, j], grads[1][j] = bad, bad
                grads[0][3, 0], grads[0][3, 5] = math.inf, -math.inf
            for params, optimizer in made:
                for param, grad in zip(params, grads, strict=True):
                    param.grad = grad.clone()
                optimizer.step()
            eps = torch.finfo(dtype).eps
            for p, q in zip(made[0][0], made[1][0], strict=True):
                # one rounding per step
                close = {"rtol": 4 * eps, "atol": 4 * eps, "equal_nan": True}
                torch.testing.assert_close(p.detach(), q.detach(), **close)
                averages = [
                    o.state[x]["exp_avg_norm"] for x, (_, o) in zip((p, q), made, strict=True)
                ]
                torch.testing.assert_close(*averages, rtol=1e-6, atol=0, equal_nan=True)
                if momentum:
                    averages = [
                        o.state[x]["exp_avg"] for x, (_, o) in zip((p, q), made, strict=True)
                    ]
                    torch.testing.assert_close(*averages, rtol=1e-6, atol=1e-7, equal_nan=True)
        bad = [param.detach().isnan() for param in made[0][0]]
        assert bad[0].all(dim=1).tolist() == [True] * 4 + [False]
        assert bad[1].tolist() == [True] * 3 + [False] * 2
        assert not bad[0][4].any()


class TestWeightsThatAreNotFinite:
    @pytest.mark.parametrize(
        ("values", "scale"),
        [
            ([0.5, -math.inf, 1.0], 0.75),
            ([0.5, math.nan, -1.0, math.inf], 0.75),
            ([-math.inf, -math.inf], 0.01),
            ([0.0, -math.inf], 0.01),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("nonfinite", ["skip", "propagate"])
    def test_the_scale_of_a_vector_is_that_of_its_finite_entries(self, values, scale, nonfinite):
        bias = nn.Parameter(torch.tensor(values))
        optimizer = Nero([{"params": [bias], "role": "bias"}], nonfinite=nonfinite)
        is_finite = torch.isfinite(bias.detach())
        bias.grad = is_finite.float()  # a masked logit has none
        optimizer.step()
        assert optimizer.state[bias]["scale"].item() == pytest.approx(scale)
        expected = torch.tensor(values) - 0.01 * scale * is_finite
        torch.testing.assert_close(bias.detach(), expected, equal_nan=True)
        assert optimizer.num_skipped == 0

    def test_a_gain_of_minus_inf_has_no_penalty_that_moves_it(self):
        gain = nn.Parameter(torch.tensor([1.0, -math.inf]))
        optimizer = Nero([{"params": [gain], "role": "gain"}], gain_penalty=0.1)
        gain.grad = torch.tensor([1.0, 0.0])
        optimizer.step()
        assert gain[0] < 1
        assert gain[1] == -math.inf
        assert optimizer.num_skipped == 1

    def test_the_radius_of_a_neuron_is_the_norm_of_its_finite_weights(self):
        weight = nn.Parameter(
            torch.tensor([[3.0, 4.0, 0.0, 0.0], [3.0, 4.0, -math.inf, 0.0], [math.nan] * 4])
        )
        sphere = Sphere("initial", centre=False)
        optimizer = Nero([{"params": [weight], **ROWS}], constraint=sphere)
        weight.grad = torch.ones(3, 4)
        optimizer.step()
        state = optimizer.state[weight]
        torch.testing.assert_close(state["radius"].flatten(), torch.tensor([5.0, 5.0, 0.01]))
        assert optimizer.num_skipped == 2
        weight.data[1:] = torch.tensor([[3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])  # mended
        weight.grad = torch.ones(3, 4)
        optimizer.step()
        torch.testing.assert_close(weight.detach().norm(dim=1), torch.tensor([5.0, 5.0, 0.01]))
