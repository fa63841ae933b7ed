"""The awkward cases have rules, and each rule a test."""

import copy
import math

import pytest
import torch
from torch import nn

import nero
from nero import INITIAL_SPHERE, LayoutError, Nero, Sphere, describe
from nero.functional import is_balanced, project


def balanced(param: torch.Tensor, constraint: Sphere = nero.BALANCED) -> bool:
    return bool(is_balanced(param, fan_in_dims=(1,), constraint=constraint).all())


def train(optimizer, grads) -> None:
    (param,) = (p for group in optimizer.param_groups for p in group["params"])
    for grad in grads:
        param.grad = grad
        optimizer.step()


class TestFanInOne:
    def test_is_treated_elementwise(self):
        layer = nn.Linear(1, 4, bias=False)
        before = layer.weight.detach().clone()
        optimizer = Nero(layer)
        assert torch.equal(layer.weight, before), "construction must not project it"
        grad = torch.tensor([[3.0], [-2.0], [1e-9], [0.0]])
        train(optimizer, [grad])
        # the bias update, at the scale of the tensor: eta * mean |w| * sign(g) at the first step
        expected = before - 0.01 * before.abs().mean() * grad.sign()
        torch.testing.assert_close(layer.weight.detach(), expected)

    def test_is_said_by_describe(self):
        (row,) = describe(nn.Linear(1, 4, bias=False)).rows
        assert "fan-in 1: no balanced neuron exists" in row.reason
        assert row.constraint == "none"


class TestFanInTwo:
    def test_keeps_the_norm_and_frees_the_mean(self):
        layer = nn.Linear(2, 16, bias=False)
        optimizer = Nero(layer)
        assert balanced(layer.weight, nero.NORM_ONLY)
        assert (layer.weight.sum(dim=1).abs() > 1e-2).any()
        before = layer.weight.detach().clone()
        train(optimizer, torch.randn(100, 16, 2))
        assert balanced(layer.weight, nero.NORM_ONLY)
        assert (layer.weight - before).norm(dim=1).mean() > 1e-2, "it can learn"

    def test_is_said_by_describe(self):
        (row,) = describe(nn.Linear(2, 4, bias=False)).rows
        assert "fan-in 2" in row.reason
        assert row.constraint == "norm 1"


def negated_view(grad: torch.Tensor) -> torch.Tensor:
    return torch._neg_view(-grad)


def imaginary_part(grad: torch.Tensor) -> torch.Tensor:
    """The way in which such tensors come about: conjugation is lazy, and so is the sign of this view."""
    return torch.complex(torch.zeros_like(grad), -grad).conj().imag


class TestLazySign:
    """Memory may hold the contrary of a tensor: torch's negative bit says so, and kernels cannot see it."""

    @pytest.mark.parametrize("lazily", [negated_view, imaginary_part])
    @pytest.mark.parametrize("build", [Nero, nero.baselines.Madam, nero.baselines.Fromage])
    def test_of_a_gradient_is_obeyed(self, lazily, build):
        torch.manual_seed(0)
        layers = [nn.Linear(8, 3) for _ in range(2)]
        layers[1].load_state_dict(layers[0].state_dict())
        optimizers = [build(layer) for layer in layers]
        for _ in range(3):
            for param, other in zip(*(layer.parameters() for layer in layers), strict=True):
                param.grad = torch.randn_like(param)
                other.grad = lazily(param.grad)
                assert other.grad.is_neg()
                kept = other.grad
                memory = torch._neg_view(kept).clone()
            for optimizer in optimizers:
                optimizer.step()
            assert torch.equal(torch._neg_view(kept), memory), "gradients are only read"
        for param, other in zip(*(layer.parameters() for layer in layers), strict=True):
            assert torch.equal(param, other)

    def test_of_a_parameter_is_obeyed(self):
        torch.manual_seed(0)
        weight = torch.randn(3, 8)
        params = [nn.Parameter(weight.clone()), nn.Parameter(torch._neg_view(-weight))]
        assert params[1].is_neg()
        for param in params:
            optimizer = Nero([param])
            train(optimizer, torch.linspace(-1, 1, 72).sin().view(3, 3, 8))
        torch.testing.assert_close(params[0], params[1], rtol=0, atol=1e-6)


class TestRowWithoutDirection:
    @pytest.mark.parametrize("value", [0.0, 0.1, -3.0])
    def test_waits_for_its_first_gradient_and_takes_its_direction(self, value):
        layer = nn.Linear(8, 3, bias=False)
        nn.init.constant_(layer.weight, value)
        optimizer = Nero(layer)
        assert (layer.weight == value).all()
        grad = torch.randn(3, 8)
        grad[1] = 0
        train(optimizer, [grad])
        expected = project(-grad, fan_in_dims=(1,))
        expected[1] = value
        # A constant row is centred first: what remains is -lr * g, good to 1e-5 in float32.
        torch.testing.assert_close(layer.weight.detach(), expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("constraint", [nero.MEAN_ONLY, nero.UNCONSTRAINED], ids=str)
    def test_takes_bias_scale_where_no_norm_is_prescribed(self, constraint):
        layer = nn.Linear(8, 3, bias=False)
        nn.init.zeros_(layer.weight)
        optimizer = Nero(layer, constraint=constraint, bias_scale=0.03)
        train(optimizer, [torch.randn(3, 8)])
        torch.testing.assert_close(layer.weight.norm(dim=1), torch.full((3,), 0.03))

    def test_lora_b_learns(self):
        b = nn.Linear(4, 6, bias=False)
        nn.init.zeros_(b.weight)
        optimizer = Nero(b, constraint="initial")
        assert (b.weight == 0).all()
        train(optimizer, torch.randn(3, 6, 4))
        torch.testing.assert_close(b.weight.norm(dim=1), torch.full((6,), 0.01))

    def test_a_constant_gradient_has_no_direction_either(self):
        layer = nn.Linear(8, 1, bias=False)
        nn.init.zeros_(layer.weight)
        train(Nero(layer), [torch.ones(1, 8)])
        assert (layer.weight == 0).all()

    def test_a_constant_row_is_not_centred_away_by_a_constant_gradient(self):
        layer = nn.Linear(8, 1, bias=False)
        nn.init.constant_(layer.weight, 0.5)
        train(Nero(layer, constraint="mean"), [torch.ones(1, 8)])
        assert (layer.weight == 0.5).all()

    def test_padding_row_stays_zero(self):
        embedding = nn.Embedding(4, 8, padding_idx=0)
        optimizer = Nero(embedding)
        for _ in range(5):
            optimizer.zero_grad()
            embedding(torch.tensor([0, 1, 2])).square().sum().backward()
            optimizer.step()
        assert (embedding.weight[0] == 0).all()
        assert balanced(embedding.weight[1:])


class TestZeroGradient:
    def test_touches_no_bit_and_lets_the_average_decay(self):
        torch.manual_seed(0)
        layer = nn.Linear(8, 3, bias=False)
        optimizer = Nero(layer, beta=0.9)
        train(optimizer, torch.randn(5, 3, 8))
        before = layer.weight.detach().clone()
        average = optimizer.state[layer.weight]["exp_avg_norm"].clone()
        grad = torch.randn(3, 8)
        grad[1] = 0
        train(optimizer, [grad])
        assert torch.equal(layer.weight[1], before[1])
        assert not torch.equal(layer.weight[0], before[0])
        torch.testing.assert_close(
            optimizer.state[layer.weight]["exp_avg_norm"][1], average[1] * math.sqrt(0.9)
        )


class TestZeroLearningRate:
    @pytest.mark.parametrize("zero", [0.0, torch.tensor(0.0)], ids=["float", "tensor"])
    @pytest.mark.parametrize("grad", ["zero", "random", "nan"])
    def test_changes_nothing(self, zero, grad):
        layer = nn.Linear(8, 3)
        optimizer = Nero(layer)
        layer.weight.grad, layer.bias.grad = torch.randn(3, 8), torch.randn(3)
        optimizer.step()
        weights = copy.deepcopy(layer.state_dict())
        state = copy.deepcopy(optimizer.state_dict()["state"])
        fill = {"zero": 0.0, "random": 1.0, "nan": math.nan}[grad]
        for group in optimizer.param_groups:
            group["lr"] = zero
        layer.weight.grad, layer.bias.grad = torch.randn(3, 8) * fill, torch.randn(3) * fill
        optimizer.step()
        torch.testing.assert_close(dict(layer.state_dict()), dict(weights), rtol=0, atol=0)
        torch.testing.assert_close(optimizer.state_dict()["state"], state, rtol=0, atol=0)


class TestNonFiniteGradient:
    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_skip_leaves_the_neuron_and_its_corrected_average_and_counts(self, bad):
        layer = nn.Linear(8, 3)
        optimizer = Nero(layer)
        layer.weight.grad, layer.bias.grad = torch.randn(3, 8), torch.randn(3)
        optimizer.step()
        before = copy.deepcopy(layer.state_dict())
        averages = [optimizer.state[p]["exp_avg_norm"].clone() for p in layer.parameters()]
        layer.weight.grad[1, 0] = bad
        layer.bias.grad[2] = bad
        optimizer.step()
        changed = (layer.weight != before["weight"]).any(dim=1), layer.bias != before["bias"]
        assert changed[0].tolist() == [True, False, True]
        assert changed[1].tolist() == [True, True, False]
        growth = math.sqrt(
            (1 - 0.999**2) / (1 - 0.999)
        )  # as that of the correction; its sign is a mark
        for param, average, i in zip(layer.parameters(), averages, (1, 2), strict=True):
            now = optimizer.state[param]["exp_avg_norm"][i]
            torch.testing.assert_close(now, -growth * average[i], rtol=1e-6, atol=0)
        assert optimizer.num_skipped == 2

    @pytest.mark.parametrize(
        "options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "direction": "polar"}], ids=str
    )
    def test_raise_names_the_parameter_and_changes_nothing(self, options):
        layer = nn.Linear(8, 3)
        optimizer = Nero(layer, nonfinite="raise", **options)
        layer.weight.grad, layer.bias.grad = torch.randn(3, 8), torch.randn(3)
        optimizer.step()
        before = copy.deepcopy((dict(layer.state_dict()), optimizer.state_dict()["state"]))
        layer.weight.grad, layer.bias.grad = torch.randn(3, 8), torch.tensor([0, math.nan, 1])
        with pytest.raises(FloatingPointError, match="`bias`"):
            optimizer.step()
        now = dict(layer.state_dict()), optimizer.state_dict()["state"]
        torch.testing.assert_close(now, before, rtol=0, atol=0)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
    def test_raise_looks_at_elements_and_not_at_their_sum(self, dtype):
        layer = nn.Linear(8, 3, bias=False, dtype=dtype)
        optimizer = Nero(layer, nonfinite="raise", fused=False)
        layer.weight.grad = torch.full((3, 8), torch.finfo(dtype).max, dtype=dtype)
        optimizer.step()
        layer.weight.grad = torch.tensor([math.inf, -math.inf] * 12, dtype=dtype).view(3, 8)
        with pytest.raises(FloatingPointError, match="`weight`"):
            optimizer.step()

    def test_propagate_lets_it_through(self):
        layer = nn.Linear(8, 3)
        optimizer = Nero(layer, nonfinite="propagate")
        layer.weight.grad, layer.bias.grad = torch.randn(3, 8), torch.randn(3)
        layer.weight.grad[1, 0] = math.nan
        optimizer.step()
        assert layer.weight.isnan().any(dim=1).tolist() == [False, True, False]
        assert optimizer.num_skipped == 0
        assert torch.isfinite(layer.bias).all()


class TestFrozenParameter:
    def test_is_untouched_until_it_is_unfrozen(self):
        layer = nn.Linear(8, 3)
        layer.weight.requires_grad_(False)
        before = layer.weight.clone()
        optimizer = Nero(layer)
        layer.bias.grad = torch.ones(3)
        optimizer.step()
        assert torch.equal(layer.weight, before)
        assert layer.weight not in optimizer.state
        layer.weight.requires_grad_(True)
        layer.weight.grad = torch.randn(3, 8)
        optimizer.step()
        assert balanced(layer.weight)
        assert optimizer.state[layer.weight]["step"] == 1


class TestConstruction:
    def test_projects_what_is_materialized(self):
        layer = nn.Linear(8, 3)
        Nero(layer)
        assert balanced(layer.weight)

    def test_a_meta_parameter_is_projected_once_it_has_storage(self):
        param = nn.Parameter(torch.empty(3, 8, device="meta"))
        optimizer = Nero([param])
        assert param not in optimizer.state
        torch.utils.swap_tensors(param, nn.Parameter(torch.randn(3, 8) + 5))
        param.grad = torch.zeros(3, 8)
        optimizer.step()
        assert balanced(param), "projected, though its gradient is zero"

    def test_a_step_without_storage_is_a_warning(self):
        model = nn.Linear(8, 3, bias=False, device="meta")
        optimizer = Nero(model)
        model.to_empty(device="cpu")  # new parameter objects, which the optimizer does not know
        with pytest.warns(UserWarning, match="`weight` is still on the meta device"):
            optimizer.step()

    def test_a_parameter_that_a_trainer_swaps_in_gets_state(self):
        layer = nn.Linear(8, 3, bias=False)
        optimizer = Nero(layer)
        swapped = nn.Parameter(layer.weight.detach().clone())
        optimizer.param_groups[0]["params"][0] = swapped
        swapped.grad = torch.randn(3, 8)
        optimizer.step()
        assert optimizer.state[swapped]["step"] == 1

    def test_loading_a_checkpoint_never_projects(self):
        layer = nn.Linear(8, 3)
        optimizer = Nero(layer)
        saved = optimizer.state_dict()
        with torch.no_grad():
            layer.weight.mul_(3)
        before = layer.weight.detach().clone()
        optimizer.load_state_dict(saved)
        assert torch.equal(layer.weight, before)


class TestAlreadyBalancedRow:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
    def test_is_left_to_the_last_bit_after_training(self, dtype):
        torch.manual_seed(0)
        param = nn.Parameter(torch.randn(64, 33).to(dtype))
        train(Nero([param]), torch.randn(50, 64, 33).to(dtype))
        before = param.detach().clone()
        Nero([param])  # as on resume: weights are loaded, then the optimizer is built
        assert torch.equal(param, before)


class TestTiedWeights:
    def test_are_one_parameter_with_one_layout(self):
        embedding, head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        head.weight = embedding.weight
        model = nn.Sequential(embedding, head)
        optimizer = Nero(model)
        assert sum(len(group["params"]) for group in optimizer.param_groups) == 1
        (row,) = describe(model).rows
        assert row.reason == "Embedding; tied to 1.weight"

    def test_a_conflict_names_both_owners_and_an_override_decides(self):
        embedding, conv = nn.Embedding(4, 4), nn.ConvTranspose1d(4, 4, 1, bias=False)
        conv.weight = nn.Parameter(torch.randn(4, 4, 1))
        linear = nn.Conv1d(4, 4, 1, bias=False)
        linear.weight = conv.weight
        model = nn.ModuleDict({"up": conv, "down": linear, "tokens": embedding})
        with pytest.raises(LayoutError, match=r"`up.weight` and `down.weight`.*override"):
            Nero(model)
        Nero(model, overrides=[("up.weight", {"neuron_dims": (0,)})])
        assert balanced(conv.weight.flatten(1))


class TestHalfPrecision:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_state_is_float32_and_loading_keeps_every_bit(self, dtype):
        torch.manual_seed(0)
        layer = nn.Linear(64, 3).to(dtype)
        optimizer = Nero(layer)
        for _ in range(20):
            for p in layer.parameters():
                p.grad = torch.randn_like(p)
            optimizer.step()
        saved = copy.deepcopy(optimizer.state_dict())
        fresh = Nero(layer)
        fresh.load_state_dict(saved)
        for p in layer.parameters():
            for key, tensor in optimizer.state[p].items():
                assert tensor.dtype in (torch.float32, torch.int64)
                assert torch.equal(fresh.state[p][key], tensor), key
                assert fresh.state[p][key].dtype == tensor.dtype

    def test_stochastic_rounding_resumes_to_the_bit(self):
        torch.manual_seed(0)
        start, grads = torch.randn(4, 64).bfloat16(), torch.randn(20, 4, 64).bfloat16()

        def build(weight, seed=0):
            param = nn.Parameter(weight.clone())
            return param, Nero([param], lr=1e-3, stochastic_rounding=True, seed=seed)

        unbroken, optimizer = build(start)
        train(optimizer, grads)
        half, optimizer = build(start)
        train(optimizer, grads[:10])
        resumed, fresh = build(half.detach())
        fresh.load_state_dict(optimizer.state_dict())
        train(fresh, grads[10:])
        assert torch.equal(resumed, unbroken)
        other, optimizer = build(start, seed=1)
        train(optimizer, grads)
        assert not torch.equal(other, unbroken)


class TestFlattenedParameters:
    @pytest.mark.parametrize("mark", ["_fsdp_flattened", "ds_id"])
    def test_are_a_clear_error(self, mark):
        param = nn.Parameter(torch.randn(100))
        setattr(param, mark, True)
        with pytest.raises(RuntimeError, match="FSDP2"):
            Nero([param])


class TestSparseGradient:
    def test_is_a_clear_error_that_says_what_to_set(self):
        param = nn.Parameter(torch.randn(4, 3))
        optimizer = Nero([("table.weight", param)])
        param.grad = torch.eye(4, 3).to_sparse()
        with pytest.raises(RuntimeError, match=r"`table.weight`.*sparse=False"):
            optimizer.step()


class TestPretrainedWeights:
    def test_the_function_is_unchanged_at_step_0_and_norms_stay(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 2))
        x = torch.randn(5, 8)
        before = model(x).detach()
        optimizer = Nero(model, constraint=INITIAL_SPHERE)
        assert torch.equal(model(x), before)
        norms = model[0].weight.detach().norm(dim=1)
        for _ in range(100):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        assert not torch.allclose(model(x), before)
        torch.testing.assert_close(model[0].weight.detach().norm(dim=1), norms)
