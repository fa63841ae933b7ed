"""The schedule that the presets were measured with."""

import copy

import pytest
import torch
from torch import nn

import nero


def rates(num_steps, **options):
    """Learning rates of a run, as factors of the largest."""
    optimizer = nero.Nero(nn.Linear(4, 3), 1.0)
    scheduler, found = nero.cosine_schedule(optimizer, num_steps, **options), []
    for _ in range(num_steps):
        found += scheduler.get_last_lr()[:1]
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("num_steps", [1, 7, 600])
def test_is_the_schedule_of_the_lab(num_steps, warmup):
    schedules = pytest.importorskip("nero_lab.engine.schedules")
    lab = schedules.Cosine(warmup=warmup)
    expected = [lab(step + 0.5, num_steps) for step in range(num_steps)]
    assert rates(num_steps, warmup=warmup) == pytest.approx(expected)


@pytest.mark.parametrize("num_steps", [1, 2, 10, 1000])
def test_every_step_has_a_rate(num_steps):
    found = rates(num_steps)
    assert min(found) > 0
    assert max(found) <= 1


def test_resumes():
    optimizer = nero.Nero(nn.Linear(4, 3), 1.0)
    scheduler = nero.cosine_schedule(optimizer, 10)
    for _ in range(4):
        optimizer.step()
        scheduler.step()
    saved = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict()))
    resumed = nero.Nero(nn.Linear(4, 3), 1.0)
    other = nero.cosine_schedule(resumed, 99)  # what was saved wins
    resumed.load_state_dict(saved[0])
    other.load_state_dict(saved[1])
    resumed.step()
    other.step()
    assert resumed.param_groups[0]["lr"] == rates(10)[5]


def test_a_run_beyond_its_end_is_told_once():
    optimizer = nero.Nero(nn.Linear(4, 3), 1.0)
    scheduler = nero.cosine_schedule(optimizer, 2)
    for _ in range(2):
        optimizer.step()
        scheduler.step()  # warnings are errors here: a whole run has none
    with pytest.warns(UserWarning, match=r"ended after num_steps=2: the learning rate is 0"):
        scheduler.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0


@pytest.mark.parametrize(("num_steps", "warmup"), [(0, 0.1), (10, 1.0), (10, -0.1), (2.5, 0.1)])
def test_refuses_other_lengths(num_steps, warmup):
    with pytest.raises((TypeError, ValueError), match=r"num_steps|warmup"):
        nero.cosine_schedule(torch.optim.SGD(nn.Linear(4, 3).parameters(), 0.1), num_steps, warmup)
