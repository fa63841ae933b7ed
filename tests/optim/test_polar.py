"""Polar directions: what the factor is, who follows it, and what is skipped."""

import warnings

import pytest
import torch
from torch import nn

import nero
from nero import Nero
from nero.core.directions import layer_direction
from nero.core.polar import newton_schulz
from nero.layout import neurons


def through_singular_values(matrix):
    """The same polynomial, where it is a polynomial of numbers."""
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    s = s / s.norm()
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return (u * s) @ v


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (6, 6), (1, 5), (5, 1)])
def test_the_factor_changes_singular_values_only(shape):
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    found = newton_schulz(matrix[None])[0]
    torch.testing.assert_close(found, through_singular_values(matrix), rtol=1e-11, atol=1e-11)


def test_five_steps_bring_singular_values_near_one():
    torch.manual_seed(0)
    values = torch.linalg.svdvals(newton_schulz(torch.randn(1, 64, 256))[0])
    assert 0.6 < values.min() < values.max() < 1.3


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_scale_of_a_gradient_does_not_matter(scale):
    torch.manual_seed(0)
    grad, layout = torch.randn(5, 7), neurons(0).at((5, 7))
    torch.testing.assert_close(
        layer_direction("polar", scale * grad, layout),
        layer_direction("polar", grad, layout),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("shape", [(2, 3, 8), (3, 3, 3)])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_neurons_may_lie_along_any_dim(shape, dim):
    """Such as the last one of (heads, dim, out)."""
    torch.manual_seed(0)
    grad = torch.randn(shape, dtype=torch.float64)
    found = layer_direction("polar", grad, neurons(dim).at(shape))
    alone = newton_schulz(grad.movedim(dim, 0).flatten(1)[None])[0]
    torch.testing.assert_close(found.movedim(dim, 0).flatten(1), alone, rtol=0, atol=0)


def test_a_row_that_is_not_finite_has_no_part_in_the_others():
    torch.manual_seed(0)
    grad = torch.randn(5, 7, dtype=torch.float64)
    grad[3, 2] = torch.inf
    found = layer_direction("polar", grad, neurons(0).at((5, 7)))
    others = [0, 1, 2, 4]
    assert found[3].isnan().all()
    alone = layer_direction("polar", grad[others], neurons(0).at((4, 7)))
    torch.testing.assert_close(found[others], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("fused", [False, None])
def test_a_skipped_neuron_keeps_its_average_and_is_counted(fused):
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(4, 6))
    group = {"params": [weight], "neuron_dims": (0,), "role": "neuron"}
    optimizer = Nero([group], direction="polar", momentum=0.9, fused=fused)
    for _ in range(2):
        weight.grad = torch.randn(4, 6)
        optimizer.step()
    row, average = weight.detach()[1].clone(), optimizer.state[weight]["exp_avg"].clone()
    weight.grad[1, 3] = torch.nan
    optimizer.step()
    assert torch.equal(weight[1], row)
    assert torch.equal(optimizer.state[weight]["exp_avg"][1], average[1])
    assert not torch.equal(optimizer.state[weight]["exp_avg"][0], average[0])
    assert optimizer.num_skipped == 1


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("fused", [False, None])
def test_to_maximize_is_to_minimize_the_negative(fused, momentum):
    torch.manual_seed(0)
    start, grads = torch.randn(4, 6), torch.randn(3, 4, 6)
    ends = []
    for sign, maximize in ((1, False), (-1, True)):
        layer = nn.Linear(6, 4, bias=False)
        layer.weight.data = start.clone()
        options = {"direction": "polar", "momentum": momentum, "fused": fused}
        optimizer = Nero(layer, maximize=maximize, **options)
        for grad in grads:
            layer.weight.grad = sign * grad
            optimizer.step()
        ends.append(layer.weight.detach())
    assert torch.equal(*ends)


def test_the_kernel_and_the_plain_backend_agree():
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [
        Nero(model, preset="polar", fused=fused)
        for model, fused in zip(models, (False, None), strict=True)
    ]
    for _ in range(10):
        x = torch.randn(20, 8)
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(11, 6)
        self.block = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 6))
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.tokens.weight
        self.extra = nn.Linear(6, 2)


def directions(optimizer):
    return {
        name: group["direction"]
        for group in optimizer.param_groups
        for name in group["param_names"]
        if group["role"] == "neuron"
    }


def test_outputs_do_not_follow_the_preset():
    wanted = {
        "block.0.weight": "polar",
        "block.1.weight": "polar",
        "tokens.weight": "gradient",  # an embedding that is the output layer as well
        "extra.weight": "gradient",  # the last layer
    }
    model = Tied()
    assert directions(Nero(model, preset="polar")) == wanted
    shown = {row.name: row.reason for row in nero.describe(model, preset="polar").rows}
    for name, direction in wanted.items():
        assert ("turns against its polar direction" in shown[name]) == (direction == "polar")
        assert ("an output layer" in shown[name]) == (direction == "gradient")


def test_a_tied_output_layer_is_the_last_one():
    model = Tied()
    del model.extra
    assert directions(Nero(model, preset="polar")) == {
        "tokens.weight": "gradient",
        "block.0.weight": "polar",
        "block.1.weight": "polar",
    }


def test_annotated_parameters_know_outputs():
    model = nero.annotate(Tied())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = Nero([*model.named_parameters()], preset="polar")
    assert directions(optimizer) == directions(Nero(model, preset="polar"))
    # What a group says itself wins.
    params = [*model.named_parameters()]
    with pytest.warns(UserWarning, match="no output layer is known"):
        stubborn = Nero([{"params": params, "direction": "polar"}], preset="polar")
    assert set(directions(stubborn).values()) == {"polar"}


def test_parameters_without_a_model_have_no_known_output():
    model = Tied()
    for params in (
        nero.param_groups(model),
        [{"params": model.parameters()}],
        [{"params": model.block.parameters()}],
    ):
        with pytest.warns(UserWarning, match="no output layer is known.*direction='gradient'"):
            Nero(params, preset="polar")
    # What annotate has left on them is known also where a group holds a generator.
    optimizer = Nero([{"params": nero.annotate(model).named_parameters()}], preset="polar")
    assert directions(optimizer) == directions(Nero(model, preset="polar"))


def test_a_direction_that_is_given_wins_over_the_preset():
    model = Tied()
    assert set(directions(Nero(model, preset="polar", direction="polar")).values()) == {"polar"}
    shown = nero.describe(model, preset="polar", direction="polar").rows
    assert all("polar" in row.reason for row in shown if row.role == "neuron")


@pytest.mark.parametrize("fused", [False, None])
def test_weights_of_any_memory_format_and_gradients_of_any_dtype(fused):
    torch.manual_seed(0)
    start, grad = torch.randn(6, 4, 3, 3), torch.randn(6, 4, 3, 3)
    ends = []
    for how in (torch.contiguous_format, torch.channels_last):
        conv = nn.Conv2d(4, 6, 3, bias=False)
        conv.weight.data = start.clone(memory_format=how)
        optimizer = Nero(conv, direction="polar", fused=fused)
        conv.weight.grad = grad.clone(memory_format=how)
        optimizer.step()
        ends.append(conv.weight.detach())
    torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-6)


def test_a_layer_without_neurons_is_left_alone():
    with pytest.warns(UserWarning, match="zero-element"):
        model = nn.Linear(3, 0)
    optimizer = Nero(model, direction="polar")
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    optimizer.step()


def test_overrides_may_name_hidden_and_output_layers():
    overrides = {"role=output": {"lr": 0.001}, "role=hidden": {"lr": 0.002}}
    optimizer = Nero(Tied(), overrides=overrides)
    rates = {name: group["lr"] for group in optimizer.param_groups for name in group["param_names"]}
    assert rates["tokens.weight"] == rates["extra.weight"] == 0.001
    assert rates["block.0.weight"] == rates["block.1.weight"] == 0.002
    assert rates["extra.bias"] == 0.01


def test_without_a_preset_all_layers_follow_and_embeddings_do_not():
    ends = {}
    for direction in ("gradient", "polar"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3))
        optimizer = Nero(model, direction=direction)
        for param in model.parameters():
            param.grad = torch.randn(param.shape)
        optimizer.step()
        ends[direction] = model
    assert set(directions(optimizer).values()) == {"polar"}
    assert torch.equal(ends["polar"][0].weight, ends["gradient"][0].weight)
    assert not torch.equal(ends["polar"][1].weight, ends["gradient"][1].weight)
