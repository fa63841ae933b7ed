"""What surrounds a step in a training loop: copies, pickles, hooks, schedulers, gradient scaling."""

import copy
import inspect
import pickle
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
    loss_of,
    through_disk,
    train,
    weights,
)
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR, ReduceLROnPlateau
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


def _by_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def _by_torch_save(value: Any) -> Any:
    return through_disk(value, weights_only=False)


@each_variant
def test_a_copy_goes_on_alone(entry: Entry, kwargs: dict[str, Any]):
    model = TinyNet()
    optimizer = entry.build(model, **kwargs)
    train(model, optimizer, range(2))
    copies = [each((model, optimizer)) for each in (copy.deepcopy, _by_pickle, _by_torch_save)]
    copies.append(copy.deepcopy(copies[0]))  # whose hooks must not have doubled
    start = weights(model.parameters()), frozen_copy(optimizer)["state"]
    expected = train(model, optimizer, range(2, 5))
    for other, copied in copies:
        assert type(copied) is type(optimizer)
        assert_same(start, (weights(other.parameters()), frozen_copy(copied)["state"]))
        assert_same(expected, train(other, copied, range(2, 5)))
        assert_same(frozen_copy(optimizer)["state"], frozen_copy(copied)["state"])


@each_entry
def test_step_hooks(entry: Entry):
    model = TinyNet()
    optimizer = entry.build(model)
    train(model, optimizer, range(1))
    start, seen = weights(model.parameters()), []

    def before(each: Optimizer, args: Any, kwargs: Any) -> None:
        assert_same(start, weights(model.parameters()))
        seen.append(("before", each))

    def after(each: Optimizer, args: Any, kwargs: Any) -> None:
        seen.append(("after", each))
        finished.extend(weights(model.parameters()))

    finished: list[torch.Tensor] = []
    handles = [
        *(optimizer.register_step_pre_hook(before), optimizer.register_step_post_hook(after)),
        *(register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)),
    ]
    try:
        optimizer.step()
    finally:
        for handle in handles:
            handle.remove()
    assert [when for when, _ in seen] == ["before", "before", "after", "after"]
    # what a hook sees after the step is the end of it, projection included
    assert_same(weights(model.parameters()) * 2, finished)
    for _, each in seen:
        assert (each is optimizer) == entry.holds(Claim.HOOKS_GET_SELF)
    optimizer.step()
    assert len(seen) == 4


@each_entry
def test_a_pre_hook_may_replace_the_arguments(entry: Entry):
    model, other = TinyNet(), TinyNet()
    optimizer, reference = entry.build(model), entry.build(other)

    def closure() -> torch.Tensor:
        loss = loss_of(model, 0)
        loss.backward()
        return loss

    handle = optimizer.register_step_pre_hook(lambda _, args, __: ((args[0], closure), {}))
    optimizer.step()
    handle.remove()
    (expected,) = train(other, reference, range(1))
    assert_same(expected, weights(model.parameters()))


@each_entry
@pytest.mark.parametrize("is_tensor", [True, False])
def test_lambda_lr_is_lr_set_by_hand(entry: Entry, is_tensor: bool):
    def factor(step: int) -> float:
        return (1.0, 0.5, 0.25, 0.0, 1.0, 2.0)[step]  # all exact, with a pause

    def build(model: TinyNet) -> Optimizer:
        return entry.build(model, lr=torch.tensor(entry.lr) if is_tensor else entry.lr)

    model, other = TinyNet(), TinyNet()
    optimizer, reference = build(model), build(other)
    scheduler = LambdaLR(optimizer, factor)
    for step in range(5):
        (actual,) = train(model, optimizer, [step])
        scheduler.step()
        for group in reference.param_groups:
            value = entry.lr * factor(step)
            group["lr"] = torch.tensor(value) if is_tensor else value
        assert_same(train(other, reference, [step]), [actual], f"step {step}")


@each_entry
@pytest.mark.filterwarnings("ignore:momentum was switched on")
def test_one_cycle(entry: Entry):
    model = TinyNet()
    optimizer = entry.build(model)
    cycles_momentum = {"momentum", "betas"} & optimizer.defaults.keys()
    if not cycles_momentum:
        with pytest.raises(ValueError, match="must support momentum or beta1"):
            OneCycleLR(optimizer, max_lr=entry.lr, total_steps=10, cycle_momentum=True)
    scheduler = OneCycleLR(
        optimizer, max_lr=entry.lr, total_steps=10, cycle_momentum=bool(cycles_momentum)
    )
    rates, trajectory = [], []
    for step in range(9):
        rates.append(optimizer.param_groups[0]["lr"])
        trajectory += train(model, optimizer, [step])
        scheduler.step()
    assert max(rates) == pytest.approx(entry.lr)
    assert max(rates[0], rates[-1]) < entry.lr / 4
    assert_moves(trajectory)


@each_entry
def test_reduce_on_plateau(entry: Entry):
    model = TinyNet()
    optimizer = entry.build(model)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    for step, metric in enumerate([1.0, 0.9, 0.9, 0.9]):
        train(model, optimizer, [step])
        scheduler.step(metric)
    assert {group["lr"] for group in optimizer.param_groups} == {entry.lr / 4}


@each_entry
def test_resumes_with_its_scheduler(entry: Entry):
    def build(seed: int) -> tuple[TinyNet, Optimizer, LRScheduler]:
        model = TinyNet(seed)
        optimizer = entry.build(model)
        return model, optimizer, LambdaLR(optimizer, lambda step: 0.5**step)

    def run(model: TinyNet, optimizer: Optimizer, scheduler: LRScheduler, steps: range) -> Any:
        trajectory = []
        for step in steps:
            trajectory += train(model, optimizer, [step])
            scheduler.step()
        return trajectory

    first = build(0)
    run(*first, range(3))
    saved = through_disk([each.state_dict() for each in first])
    again = build(1)
    for each, state in zip(again, saved, strict=True):
        each.load_state_dict(state)
    assert_same(run(*first, range(3, 6)), run(*again, range(3, 6)))


@each_variant
def test_gradient_scaling(entry: Entry, kwargs: dict[str, Any]):
    model, other = TinyNet(), TinyNet()
    optimizer, reference = entry.build(model, **kwargs), entry.build(other, **kwargs)
    # Scaling by a power of two is exact: the trajectories must agree to the last bit.
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1000)

    def scaled_step(step: int, *, overflow: bool = False) -> None:
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        if overflow:
            model.mix.weight.grad[0, 0] = torch.inf
        scaler.step(optimizer)
        scaler.update()

    for step in range(3):
        scaled_step(step)
        (expected,) = train(other, reference, [step])
        assert_same(expected, weights(model.parameters()), f"step {step}")

    before = weights(model.parameters()), frozen_copy(optimizer)["state"]
    scaled_step(3, overflow=True)
    assert_same(before, (weights(model.parameters()), frozen_copy(optimizer)["state"]))
    assert scaler.get_scale() == 2.0**9
    scaled_step(4)
    assert_same(train(other, reference, [4]), [weights(model.parameters())])


@each_variant
def test_zero_grad(entry: Entry, kwargs: dict[str, Any]):
    model, other = TinyNet(), TinyNet()
    optimizer, reference = entry.build(model, **kwargs), entry.build(other, **kwargs)
    for step in range(3):
        optimizer.zero_grad(set_to_none=False)
        loss_of(model, step).backward()
        optimizer.step()
        assert_same(train(other, reference, [step]), [weights(model.parameters())])
    grads = [p.grad for p in model.parameters()]
    optimizer.zero_grad(set_to_none=False)
    assert all(p.grad is g for p, g in zip(model.parameters(), grads, strict=True))
    assert not any(g.any() for g in grads)
    optimizer.zero_grad()
    assert all(p.grad is None for p in model.parameters())


@each_entry
def test_overridden_methods_keep_the_signatures_of_torch(entry: Entry):
    cls = type(entry.build(TinyNet()))
    overridden = {
        name
        for base in cls.__mro__[: cls.__mro__.index(Optimizer)]
        for name, member in vars(base).items()
        if callable(member) and name in vars(Optimizer) and name != "__init__"
    }
    assert {"step", "load_state_dict", "add_param_group"} <= overridden
    for name in overridden:
        ours, theirs = _shape(getattr(cls, name)), _shape(getattr(Optimizer, name))
        assert ours == theirs, f"{name}{ours} is not torch's {name}{theirs}"


def _shape(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


@each_entry
def test_looks_like_an_optimizer(entry: Entry):
    optimizer = entry.build(TinyNet())
    assert isinstance(optimizer, Optimizer)
    assert entry.optim_cls.__name__ in repr(optimizer)
    assert str(entry.lr) in repr(optimizer)
    assert optimizer.defaults["lr"] == entry.lr
    assert optimizer.param_groups
