"""What one step reads, writes and leaves alone."""

import collections
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from optimizer_table import Claim, Entry, each_entry, each_variant
from tiny_problem import (
    TinyNet,
    assert_moves,
    assert_same,
    frozen_copy,
    give_gradients,
    loss_of,
    train,
    weights,
)
from torch import Tensor, nn
from torch.optim import Optimizer

SHAPES = (
    *((), (0,), (1,), (5,)),
    *((0, 3), (3, 0), (1, 1), (3, 1), (4, 2), (2, 3)),
    *((4, 3, 1, 1), (2, 3, 2, 2)),
)


def make_params(seed: int = 0) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


@each_entry
def test_is_deterministic(entry: Entry):
    runs = []
    for _ in range(2):
        model = TinyNet()
        runs.append(train(model, entry.build(model), range(5)))
    assert_same(*runs)
    assert_moves(runs[0])


@each_entry
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_every_shape(entry: Entry, dtype: torch.dtype):
    params = [nn.Parameter(p.detach().to(dtype)) for p in make_params()]
    optimizer = entry.build(params)
    before, addresses = weights(params), [p.data_ptr() for p in params]
    for step in range(3):
        give_gradients(params, step)
        optimizer.step()
    for old, param in zip(before, params, strict=True):
        assert torch.isfinite(param).all()
        assert param.numel() == 0 or not torch.equal(old, param)
        assert param.dtype == dtype
        assert param.is_leaf
        assert param.requires_grad
    assert addresses == [p.data_ptr() for p in params]
    optimizer.load_state_dict(optimizer.state_dict())


@each_entry
def test_parameters_of_several_dtypes(entry: Entry):
    dtypes = [torch.float32, torch.bfloat16, torch.float64]
    together = [nn.Parameter(torch.ones(4, 3).tril().to(dtype)) for dtype in dtypes]
    alone = copy.deepcopy(together)
    optimizers = [entry.build(together), *(entry.build([p]) for p in alone)]
    for step in range(3):
        give_gradients(together, step)
        for one, other in zip(alone, together, strict=True):
            one.grad = other.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert_same(weights(alone), weights(together))


@each_variant
def test_without_a_gradient_nothing_changes(entry: Entry, kwargs: dict[str, Any]):
    model = TinyNet()
    optimizer = entry.build(model, **kwargs)
    train(model, optimizer, range(3))
    optimizer.zero_grad()
    before = weights(model.parameters()), frozen_copy(optimizer)
    optimizer.step()
    assert_same(before, (weights(model.parameters()), frozen_copy(optimizer)))


@each_entry
def test_a_parameter_without_a_gradient_is_left_out(entry: Entry):
    params, others = make_params(), make_params()
    optimizer, reference = entry.build(params), entry.build(others[::2])
    idle = weights(params[1::2])
    for step in range(3):
        give_gradients(params, step)
        for param, other in zip(params[::2], others[::2], strict=True):
            other.grad = param.grad.clone()
        for param in params[1::2]:
            param.grad = None
        optimizer.step()
        reference.step()
    assert_same(weights(others[::2]), weights(params[::2]))
    assert_same(idle, weights(params[1::2]))


@each_variant
@pytest.mark.parametrize("maximize", [False, True])
def test_gradients_are_never_written_to(entry: Entry, kwargs: dict[str, Any], maximize: bool):
    model = TinyNet()
    optimizer = entry.build(model, **kwargs, maximize=maximize)
    loss_of(model, 0).backward()
    grads = [p.grad for p in model.parameters()]
    before, versions = weights(grads), [g._version for g in grads]
    optimizer.step()
    assert_same(before, weights(grads))
    # A write that is undone again would still race with a reader, such as an all-reduce.
    assert versions == [g._version for g in grads]
    assert all(p.grad is g for p, g in zip(model.parameters(), grads, strict=True))


def _transposed(tensor: Tensor) -> Tensor:
    if tensor.ndim < 2:
        return tensor
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)


def _sliced(tensor: Tensor) -> Tensor:
    # every second element of a larger tensor: strides that no copy would have
    return tensor.repeat_interleave(2, dim=-1)[..., ::2] if tensor.ndim else tensor


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


@each_entry
@pytest.mark.parametrize("layout", [_transposed, _sliced, _channels_last])
@pytest.mark.parametrize("which", ["params", "grads", "both"])
def test_memory_layouts(entry: Entry, layout: Callable[[Tensor], Tensor], which: str):
    plain = make_params()
    laid_out = make_params()
    if which != "grads":
        laid_out = [nn.Parameter(layout(p.detach())) for p in laid_out]
    strides = [p.stride() for p in laid_out]
    optimizers = entry.build(plain), entry.build(laid_out)
    for step in range(4):
        give_gradients(plain, step)
        for param, other in zip(plain, laid_out, strict=True):
            other.grad = layout(param.grad.clone()) if which != "params" else param.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert strides == [p.stride() for p in laid_out]
    # Sums run in float64 but in another order, so a coefficient can round to the other neighbour:
    # an ulp a step, for four steps.
    torch.testing.assert_close(
        weights(laid_out), weights(plain), rtol=4 * torch.finfo(torch.float32).eps, atol=1e-7
    )


@each_variant
def test_a_closure_gives_the_same_trajectory(entry: Entry, kwargs: dict[str, Any]):
    model, other = TinyNet(), TinyNet()
    optimizer, reference = entry.build(model, **kwargs), entry.build(other, **kwargs)
    for step in range(5):
        calls = []

        def closure(step=step, calls=calls) -> Tensor:
            assert torch.is_grad_enabled()
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            calls.append(loss)
            return loss

        assert optimizer.step(closure) is calls[0]
        assert len(calls) == 1
        (expected,) = train(other, reference, [step])
        assert_same(expected, weights(model.parameters()), f"step {step}")
    assert optimizer.step() is None


@each_variant
@pytest.mark.parametrize("kind", [float, torch.tensor])
@pytest.mark.parametrize("start", [0, 3])
def test_steps_at_lr_zero_leave_no_trace(
    entry: Entry, kwargs: dict[str, Any], kind: Callable[[float], Any], start: int
):
    model = TinyNet()
    for option in entry.no_tensor_lr.keys() & kwargs.keys():
        if kind is torch.tensor:
            with pytest.raises(ValueError, match=entry.no_tensor_lr[option]):
                entry.build(model, **kwargs, lr=kind(entry.lr))
            return
    optimizer = entry.build(model, **kwargs, lr=kind(entry.lr))
    train(model, optimizer, range(start))
    other, reference = copy.deepcopy((model, optimizer))

    before = weights(model.parameters()), frozen_copy(optimizer)["state"]
    set_lr(optimizer, 0.0)
    train(model, optimizer, range(20, 22))
    for param in model.parameters():
        param.grad.zero_()  # what checkpoint tools do to make state exist
    optimizer.step()
    set_lr(optimizer, entry.lr)
    assert_same(before[0], weights(model.parameters()))
    if entry.holds(Claim.ZERO_LR_KEEPS_STATE):
        assert_same(before[1], frozen_copy(optimizer)["state"])
        after = range(start, start + 3)
        assert_same(train(other, reference, after), train(model, optimizer, after))
    else:
        assert before[1].keys() != optimizer.state_dict()["state"].keys() or any(
            not torch.equal(value, optimizer.state_dict()["state"][index][key])
            for index, state in before[1].items()
            for key, value in state.items()
        )


def set_lr(optimizer: Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


@each_entry
@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
def test_a_tensor_lr_is_the_number_it_holds(entry: Entry, shape: tuple[int, ...]):
    params, others = make_params(), make_params()
    lr = torch.full(shape, entry.lr)
    optimizers = entry.build(params, lr=lr), entry.build(others)
    for step in range(4):
        for optimizer, each in zip(optimizers, (params, others), strict=True):
            give_gradients(each, step)
            optimizer.step()
            set_lr(optimizer, entry.lr / 2 ** (step + 1))
    if entry.holds(Claim.TENSOR_LR_IS_EXACT):
        assert_same(weights(others), weights(params))
    else:
        # one more rounding of the rate a step
        torch.testing.assert_close(weights(params), weights(others), rtol=1e-6, atol=1e-7)


@each_entry
def test_frozen_parameters_are_not_touched(entry: Entry):
    model = TinyNet()
    frozen = [model.embed.weight, model.conv.bias]
    for param in frozen:
        param.requires_grad_(False)
    before = weights(frozen)
    optimizer = entry.build(model)
    assert_moves(train(model, optimizer, range(6)))
    assert_same(before, weights(frozen))
    assert not any(param in optimizer.state for param in frozen)

    # thawed, they train and have state like all others
    for param in frozen:
        param.requires_grad_(True)
    train(model, optimizer, range(6, 9))
    assert not any(torch.equal(old, param) for old, param in zip(before, frozen, strict=True))
    assert [*optimizer.state[model.conv.bias]] == [*optimizer.state[model.mix.bias]]
    optimizer.state_dict()


@each_entry
def test_a_frozen_parameter_may_hold_integers(entry: Entry):
    # the quantized weights under a LoRA adapter
    quantized = nn.Parameter(torch.arange(12, dtype=torch.uint8).reshape(4, 3), requires_grad=False)
    adapter = nn.Parameter(torch.randn(4, 3))
    optimizer = entry.build([quantized, adapter])
    give_gradients([adapter], 0)
    optimizer.step()
    optimizer.load_state_dict(frozen_copy(optimizer))
    assert quantized.flatten().tolist() == list(range(12))


@each_entry
@pytest.mark.parametrize("from_the_start", [True, False])
def test_a_frozen_parameter_with_a_left_over_gradient(entry: Entry, from_the_start: bool):
    params = [nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(3, 4))]
    frozen = params[0].requires_grad_(not from_the_start)
    optimizer = entry.build(params)
    give_gradients(params, 0)
    frozen.requires_grad_(False)
    before = weights(params)
    optimizer.step()
    is_same = [torch.equal(old, new) for old, new in zip(before, params, strict=True)]
    assert is_same == [entry.holds(Claim.FROZEN_STAYS), False]


def swap_parameters(model: nn.Module, optimizer: Optimizer) -> None:
    """Do what FSDP2 does to an optimizer that was built first: new tensors in the same groups."""
    new = {}
    for module in model.modules():
        for name, param in module.named_parameters(recurse=False):
            new[param] = nn.Parameter(param.detach().clone())
            setattr(module, name, new[param])
    for group in optimizer.param_groups:
        group["params"] = [new[param] for param in group["params"]]


@each_variant
def test_swapped_parameters_train_like_the_old_ones(entry: Entry, kwargs: dict[str, Any]):
    model, other = TinyNet(), TinyNet()
    optimizer, reference = entry.build(model, **kwargs), entry.build(other, **kwargs)
    swap_parameters(model, optimizer)
    expected = train(other, reference, range(4))
    assert_moves(expected)
    assert_same(expected, train(model, optimizer, range(4)))
    # The old ones would keep the memory of the whole model alive.
    assert {*optimizer.state} <= {*model.parameters()}


@each_entry
@pytest.mark.parametrize("num_steps", [0, 2])
def test_swapped_parameters_can_be_saved(entry: Entry, num_steps: int):
    model, other = TinyNet(), TinyNet()
    optimizer, reference = entry.build(model), entry.build(other)
    swap_parameters(model, optimizer)
    # Accelerate saves and loads at once, before any step.
    train(model, optimizer, range(num_steps))
    train(other, reference, range(num_steps))
    optimizer.load_state_dict(frozen_copy(optimizer))
    after = range(num_steps, num_steps + 2)
    assert_same(train(other, reference, after), train(model, optimizer, after))
    assert_same(reference.state_dict()["state"], optimizer.state_dict()["state"])


@each_entry
def test_swapped_parameters_have_state_to_load_into(entry: Entry):
    """torch's checkpoints load what the optimizer has, and build nothing if it has anything."""
    model = TinyNet()
    optimizer = entry.build(model)
    num_states = len(optimizer.state_dict()["state"])
    swap_parameters(model, optimizer)
    before = weights([*model.parameters()])
    assert len(optimizer.state_dict()["state"]) == num_states
    assert_same(before, weights([*model.parameters()]))


@each_entry
def test_reading_absent_state_does_no_harm(entry: Entry):
    model = TinyNet()
    model.head.weight.requires_grad_(False)
    optimizer = entry.build(model)
    # `state` is a defaultdict: asking it for what is not there makes an empty entry.
    assert optimizer.state[model.head.weight] == {}
    model.head.weight.requires_grad_(True)
    assert_moves(train(model, optimizer, range(3)))


@each_entry
def test_state_can_be_reset_by_assignment(entry: Entry):
    model = TinyNet()
    optimizer = entry.build(model)
    train(model, optimizer, range(3))
    other = copy.deepcopy(model)
    fresh = entry.build(other)
    optimizer.state = collections.defaultdict(dict)  # as schedules with restarts do
    assert_same(train(other, fresh, range(3)), train(model, optimizer, range(3)))
