"""What today's Nero implementations get wrong: one named test a row of the survey.

Each docstring says what the authors' code (A) and pytorch_optimizer's (P) do, as measured.
"""

import math

import pytest
import torch
from torch import nn

from nero import Nero


def turn_rad(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """The angle through which each row turned, without cancellation at small angles."""
    before, after = before.double().flatten(1), after.double().flatten(1)
    before, after = (x / x.norm(dim=1, keepdim=True) for x in (before, after))
    return 2 * torch.atan2((after - before).norm(dim=1), (after + before).norm(dim=1))


def assert_balanced(rows: torch.Tensor, tolerance: float = 1e-6) -> None:
    rows = rows.detach().double().flatten(1)
    assert (rows.norm(dim=1) - 1).abs().max() < tolerance
    assert rows.mean(dim=1).abs().max() < tolerance


def tangent_gradient(weight: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """A gradient of the given norm a row, orthogonal to the row and to its mean direction."""
    g = torch.randn_like(weight, dtype=torch.float64)
    w = weight.detach().double()
    g -= g.mean(dim=1, keepdim=True)
    g -= (g * w).sum(dim=1, keepdim=True) * w
    g *= scale / g.norm(dim=1, keepdim=True)
    return g.to(weight.dtype)


def test_fan_in_1_and_depthwise_1x1():
    """A: NaN. P: silently zero."""
    model = nn.Sequential(
        nn.Conv2d(4, 4, 1, groups=4), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 1), nn.Linear(1, 3),
    )  # fmt: skip
    optimizer = Nero(model)
    before = [p.detach().clone() for p in model.parameters()]
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 4, 5, 5)).square().mean().backward()
        optimizer.step()
    for old, param in zip(before, model.parameters(), strict=True):
        assert torch.isfinite(param).all()
        assert (param != 0).any()
        assert (param != old).any()


def test_zero_initialized_rows_and_padding_row():
    """A: NaN. P: survive; the padding row stays 0."""
    embedding = nn.Embedding(5, 8, padding_idx=2)
    zero = nn.Linear(8, 3, bias=False)
    nn.init.zeros_(zero.weight)
    model = nn.Sequential(embedding, zero)
    optimizer = Nero(model)
    assert (zero.weight == 0).all()
    for _ in range(3):
        optimizer.zero_grad()
        (model(torch.arange(5)) - 1).square().mean().backward()
        optimizer.step()
    assert_balanced(zero.weight)
    assert (embedding.weight[2] == 0).all()
    assert torch.isfinite(embedding.weight).all()


def test_channels_last_conv_weight(backend):
    """A and P: crash in `view`."""
    torch.manual_seed(0)
    plain = nn.Conv2d(3, 8, 3)
    last = nn.Conv2d(3, 8, 3)
    last.load_state_dict(plain.state_dict())
    last = last.to(memory_format=torch.channels_last)
    optimizers = Nero(plain), Nero(last)
    grad = torch.randn(8, 3, 3, 3)
    plain.weight.grad = grad
    last.weight.grad = grad.to(memory_format=torch.channels_last)
    for optimizer in optimizers:
        optimizer.step()
    assert last.weight.is_contiguous(memory_format=torch.channels_last)
    # The order of summation differs with the memory format; sums in float64 hide it, in float32 nearly.
    atol = 0 if backend == "plain" else 6e-8
    torch.testing.assert_close(plain.weight, last.weight, rtol=0, atol=atol)


def test_conv_transpose_constrains_the_output_axis():
    """A and P: constrain the input axis of (in, out/groups, ...)."""
    layer = nn.ConvTranspose2d(4, 6, 3, groups=2)
    Nero(layer)
    per_group = layer.weight.detach().reshape(2, 2, 3, 3, 3)  # group, in, out, kernel
    assert_balanced(per_group.permute(0, 2, 1, 3, 4).reshape(6, -1))


def test_pos_embed_is_one_neuron_a_position():
    """A and P: (1, N, D) is one neuron."""

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.pos_embed = nn.Parameter(torch.randn(1, 7, 16))

    model = ViT()
    optimizer = Nero(model)
    assert_balanced(model.pos_embed[0])
    assert optimizer.state[model.pos_embed]["exp_avg_norm"].numel() == 7


def test_stacked_experts_are_one_neuron_an_output():
    """A and P: (E, out, in) is one neuron per expert."""

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.w1 = nn.Parameter(torch.randn(4, 6, 10))

    model = Experts()
    Nero(model)
    assert_balanced(model.w1.detach().reshape(24, 10))


def test_frozen_parameter_is_untouched():
    """A: overwritten at construction. P: untouched."""
    layer = nn.Linear(5, 3)
    layer.weight.requires_grad_(False)
    before = layer.weight.clone()
    optimizer = Nero(layer)
    layer.weight.grad = torch.ones(3, 5)
    optimizer.step()
    assert torch.equal(layer.weight, before)


def test_add_param_group():
    """A: KeyError. P: works."""
    first, second = nn.Linear(5, 3), nn.Linear(3, 2)
    optimizer = Nero(first.parameters())
    optimizer.add_param_group({"params": second.parameters(), "lr": 0.1})
    assert_balanced(second.weight)
    before = second.weight.detach().clone()
    second.weight.grad = tangent_gradient(second.weight)
    optimizer.step()
    torch.testing.assert_close(
        turn_rad(before, second.weight.detach()), torch.full((2,), math.atan(0.1)).double()
    )


def test_resume_with_a_non_default_beta_is_exact():
    """A: diverges, because beta is not saved. P: exact."""
    torch.manual_seed(0)
    grads = torch.randn(20, 3, 5)

    def run(weight, optimizer, grads):
        for grad in grads:
            weight.grad = grad
            optimizer.step()

    unbroken = nn.Parameter(torch.randn(3, 5))
    resumed = nn.Parameter(unbroken.detach().clone())
    optimizer = Nero([unbroken], beta=0.5)
    run(unbroken, optimizer, grads)
    optimizer = Nero([resumed], beta=0.5)
    run(resumed, optimizer, grads[:10])
    saved, weights = optimizer.state_dict(), resumed.detach().clone()
    resumed = nn.Parameter(weights)
    optimizer = Nero([resumed])  # the default beta, until the checkpoint is loaded
    optimizer.load_state_dict(saved)
    run(resumed, optimizer, grads[10:])
    assert torch.equal(resumed, unbroken)


def test_first_gradient_leaves_neurons_on_the_manifold():
    """A: on the manifold. P: off it (row norm 0.57)."""
    layer = nn.Linear(64, 16, bias=False)
    optimizer = Nero(layer)
    layer.weight.grad = torch.randn(16, 64)
    optimizer.step()
    assert_balanced(layer.weight)


def test_layer_first_activated_at_step_200_turns_by_lr():
    """A: 0.0097 rad. P: 0.134 rad, because it keeps the step per group."""
    early, late = nn.Linear(64, 4, bias=False), nn.Linear(64, 4, bias=False)
    optimizer = Nero([*early.parameters(), *late.parameters()])
    for _ in range(200):
        early.weight.grad = torch.randn(4, 64)
        optimizer.step()
    before = late.weight.detach().clone()
    late.weight.grad = tangent_gradient(late.weight)
    optimizer.step()
    # Turned by the arc tangent of lr, exactly, but for the rounding of float32 weights.
    torch.testing.assert_close(
        turn_rad(before, late.weight.detach()), torch.full((4,), math.atan(0.01)).double(),
        rtol=1e-4, atol=0,
    )  # fmt: skip


@pytest.mark.parametrize("lr", [0.01, torch.tensor(0.01)], ids=["float", "tensor"])
def test_state_made_by_a_zero_gradient_step_does_not_change_the_first_turn(lr):
    """A: skips the step. P: first turn 1.41 times too big. What checkpoint tools do to make state."""
    layer = nn.Linear(64, 4, bias=False)
    optimizer = Nero(layer, lr=lr)
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.zeros_like(layer.weight)
    group = optimizer.param_groups[0]
    group["lr"] = torch.tensor(0.0) if isinstance(lr, torch.Tensor) else 0.0
    optimizer.step()
    group["lr"] = lr
    assert torch.equal(layer.weight, before)
    assert optimizer.state[layer.weight]["step"] == 0
    layer.weight.grad = tangent_gradient(layer.weight)
    optimizer.step()
    torch.testing.assert_close(
        turn_rad(before, layer.weight.detach()), torch.full((4,), math.atan(0.01)).double(),
        rtol=1e-4, atol=0,
    )  # fmt: skip


def test_one_inf_gradient_is_skipped_counted_and_forgotten():
    """A and P: the neuron is frozen for ever, unseen."""
    layer = nn.Linear(64, 4, bias=False)
    optimizer = Nero(layer)
    layer.weight.grad = torch.randn(4, 64)
    layer.weight.grad[1, 3] = math.inf
    before = layer.weight.detach().clone()
    optimizer.step()
    assert torch.equal(layer.weight[1], before[1])
    assert (turn_rad(before, layer.weight.detach())[[0, 2, 3]] > 1e-3).all()
    assert optimizer.num_skipped == 1
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.randn(4, 64)
    optimizer.step()
    assert (turn_rad(before, layer.weight.detach()) > 1e-3).all()
    assert_balanced(layer.weight)
    assert optimizer.num_skipped == 1


def test_running_average_of_bf16_parameters_over_3000_steps():
    """A and P: a third of the true value, because the average is kept in bf16."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(4, 64, dtype=torch.bfloat16))
    optimizer = Nero([weight], beta=0.999)
    true = torch.zeros(4, 1, dtype=torch.float64)
    for _ in range(3000):
        weight.grad = torch.randn(4, 64, dtype=torch.bfloat16)
        optimizer.step()
        true = 0.999 * true + 0.001 * weight.grad.double().square().sum(dim=1, keepdim=True)
    # 3,000 roundings of a float32 average, each of 6e-8, forgotten after 1,000 steps.
    torch.testing.assert_close(
        optimizer.state[weight]["exp_avg_norm"].double(), true.sqrt(), rtol=1e-5, atol=0
    )


def test_bf16_weights_at_lr_1e_3_turn_as_far_as_fp32_ones():
    """A: 18% and P: 21% of entries move at a step, and most of the update is lost.

    Rounding to nearest loses it here too; stochastic rounding is the option that keeps it.
    """
    torch.manual_seed(0)
    start = torch.randn(8, 1024)
    direction = tangent_gradient(torch.nn.functional.normalize(start - start.mean(1, keepdim=True)))

    def total_turn(dtype, **options):
        weight = nn.Parameter(start.clone().to(dtype))
        optimizer = Nero([weight], lr=1e-3, **options)
        for _ in range(100):
            weight.grad = direction.to(dtype)
            optimizer.step()
        w, u = weight.detach().double(), direction.double()
        return -(w * u).sum(dim=1).asin().mean().item()

    exact = total_turn(torch.float32)
    assert total_turn(torch.bfloat16) < 0.5 * exact
    # The noise of 8 rows of 1,024 entries, each rounded 100 times, averages out: measured, 0.03%.
    assert total_turn(torch.bfloat16, stochastic_rounding=True) == pytest.approx(exact, rel=0.01)


def test_fp16_tiny_gradient_turns_by_lr():
    """A: NaN. P: a step of norm 1.46 instead of 0.01."""
    weight = nn.Parameter(torch.randn(4, 64, dtype=torch.float16))
    optimizer = Nero([weight], lr=0.1)
    before = weight.detach().clone()
    weight.grad = (torch.randn(4, 64).sign() * 6e-8).half()  # the smallest float16 there is
    assert (weight.grad != 0).all()
    optimizer.step()
    # A random direction of 64 dims is 0.1 to 0.2 away from orthogonal; float16 keeps three digits.
    assert ((turn_rad(before, weight.detach()) - 0.1).abs() < 0.02).all()


def turn_of_two_steps(grad_norm):
    layer = nn.Linear(64, 4, bias=False)
    optimizer = Nero(layer)
    before = layer.weight.detach().clone()
    direction = tangent_gradient(before)
    for _ in range(2):  # the second step reads the average that the first one stored
        layer.weight.grad = direction * grad_norm
        optimizer.step()
    assert_balanced(layer.weight)
    return turn_rad(before, layer.weight.detach())


def assert_two_full_steps(turned):
    # Each step turns by atan(0.01); the second gradient is 0.01 rad off the tangent by then.
    expected = torch.full((4,), 2 * math.atan(0.01)).double()
    torch.testing.assert_close(turned, expected, rtol=1e-3, atol=0)


def test_fp32_gradient_of_norm_1e_9():
    """A: correct. P: step 11 times too small, because of its eps."""
    assert_two_full_steps(turn_of_two_steps(1e-9))


def test_fp32_gradient_of_norm_1e_22():
    """A: NaN, because the square underflows. P: step about 0."""
    assert_two_full_steps(turn_of_two_steps(1e-22))


@pytest.mark.parametrize("grad_norm", [1e-30, 1e-15, 1e15, 1e30], ids="{:g}".format)
def test_fp32_gradient_of_any_other_norm(grad_norm):
    """Beyond the survey: the same at both ends of what float32 can hold."""
    assert_two_full_steps(turn_of_two_steps(grad_norm))


def test_torch_compile_fullgraph():
    """A: ok. P: fails."""
    torch.manual_seed(0)
    eager, compiled = (nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)) for _ in range(2))
    compiled.load_state_dict(eager.state_dict())
    optimizers = Nero(eager), Nero(compiled)
    steps = optimizers[0].step, torch.compile(optimizers[1].step, fullgraph=True, backend="eager")
    for _ in range(3):
        for p, q in zip(eager.parameters(), compiled.parameters(), strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        for run in steps:
            run()
    for p, q in zip(eager.parameters(), compiled.parameters(), strict=True):
        assert torch.equal(p, q)


def test_sparse_gradient_is_a_clear_error():
    """A: crash. P: clear error."""
    embedding = nn.Embedding(5, 4, sparse=True)
    optimizer = Nero(embedding)
    embedding(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError, match=r"`weight` has a sparse gradient.*sparse=False"):
        optimizer.step()


def test_unknown_keyword_is_rejected():
    """A: rejected. P: swallowed."""
    with pytest.raises(TypeError, match="nesterov"):
        Nero(nn.Linear(3, 2), nesterov=True)


def test_maximize_leaves_the_gradient_alone():
    """A: absent. P: negates the caller's gradient in place."""
    torch.manual_seed(0)
    up, down = nn.Linear(5, 3), nn.Linear(5, 3)
    down.load_state_dict(up.state_dict())
    optimizers = Nero(up, maximize=True), Nero(down)
    grad = torch.randn(3, 5)
    up.weight.grad, down.weight.grad = grad.clone(), -grad
    for optimizer in optimizers:
        optimizer.step()
    assert torch.equal(up.weight.grad, grad)
    assert torch.equal(up.weight, down.weight)


def test_meta_device_construction():
    """A: crash. P: ok."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    optimizer = Nero(model)
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 2, 1]
