"""Checks of a step under the real DeepSpeed; the full values and gradients that it reads."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from nero import Nero
from nero.diagnostics import StepCheck, StepError
from nero.diagnostics.full_values import full_shapes, full_values
from tests.distributed import flat_network
from tests.distributed.ranks import on_ranks
from tests.integrations.zero_engines import started


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3, bias=False))


def batch(rank):
    return torch.randn(8, 6, generator=torch.Generator().manual_seed(rank))


def test_values_and_gradients_under_every_stage():
    on_ranks(2, _every_stage)


def _every_stage():
    rank = dist.get_rank()
    alone = network()
    for each in range(2):
        (alone(batch(each)).square().mean() / 2).backward()
    wanted = dict(alone.named_parameters())
    for stage in (1, 2, 3):
        model = network()
        engine, _ = started(model, torch.optim.SGD(model.parameters(), lr=0.0), stage)
        engine.backward(engine(batch(rank)).square().mean())
        with full_shapes(engine):
            shapes = {n: p.shape for n, p in engine.module.named_parameters()}
        assert shapes == {n: p.shape for n, p in wanted.items()}, stage
        with full_values(engine, with_grads=True) as values:
            found = dict(values)
        assert found.keys() == wanted.keys()
        for name, full in found.items():
            assert torch.equal(full.value, wanted[name]), (stage, name)
            # DeepSpeed adds up what the ranks have in another order.
            torch.testing.assert_close(full.grad, wanted[name].grad, rtol=1e-5, atol=1e-7)
            assert full.peers == (0, 1)
            assert full.is_shared


def test_a_check_of_a_step():
    on_ranks(2, _every_engine)


def _every_engine():
    for stage in (1, 2, 3):
        engine, optimizer = engine_of(stage)
        check = StepCheck(engine, optimizer)
        for step in range(3):
            checked_step(engine, check, step)
        assert check.report.num_params == 12, stage
        assert not check.report.bounds_only
        late = StepCheck(engine, optimizer)  # what the engine hides of the state cannot be checked
        checked_step(engine, late, 3)
        assert late.report.bounds_only
        rows_that_were_swapped_are_named(stage)


def engine_of(stage):
    model = flat_network.network()
    optimizer = Nero(model, preset="rows", fused=False)
    return started(model, optimizer, stage)[0], optimizer


def checked_step(engine, check, step):
    engine.backward(flat_network.loss_of(engine, *flat_network.batch(step)))
    with check:
        engine.step()


def rows_that_were_swapped_are_named(stage):
    """As an engine would do whose map of its buffer is wrong."""
    engine, optimizer = engine_of(stage)
    check = StepCheck(engine, optimizer)
    checked_step(engine, check, 0)
    before = optimizer.rule.step

    def swapped(updates, groups):
        for update in updates:
            for piece in update.flat.pieces:
                if piece.name == "`fc.weight`" and piece.start < piece.stop:
                    grad = update.grad[piece.offset :][: piece.stop - piece.start]
                    grad.copy_(grad.roll(piece.shape[1]))
        before(updates, groups)

    optimizer.rule.step = swapped
    with pytest.raises(StepError, match=r"`fc\.weight`: 41 neurons moved") as caught:
        checked_step(engine, check, 1)
    assert {(fault.name, fault.kind) for fault in caught.value.report.faults} == {
        ("fc.weight", "wrong")
    }
