"""What all text tasks share: batches that resume and divide, and losses that begin as a guess and fall."""

import math
from itertools import islice
from pathlib import Path

import pytest
import torch
from text_tasks import build, rows
from torch import Tensor

from nero_lab.engine.task import Experiment, Task
from nero_lab.tasks.fineweb_gpt2 import FINEWEB_GPT2
from nero_lab.tasks.multi30k import MULTI30K
from nero_lab.tasks.shakespeare import SHAKESPEARE
from nero_lab.tasks.shakespeare_moe import SHAKESPEARE_MOE
from nero_lab.tasks.wikitext2 import WIKITEXT2

TASKS = (SHAKESPEARE, SHAKESPEARE_MOE, WIKITEXT2, MULTI30K, FINEWEB_GPT2)
each_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)


@each_task
def test_a_late_start_gives_the_tail(task: Task, data_dir: Path) -> None:
    experiment = build(task, data_dir)
    whole, tail = list(experiment.batches(1, 0)), list(experiment.batches(1, 3))
    assert len(whole) == experiment.steps_per_epoch
    assert len(tail) == len(whole) - 3
    for expected, found in zip(whole[3:], tail, strict=True):
        assert all(a.equal(b) for a, b in zip(expected, found, strict=True))


@each_task
def test_two_ranks_partition_a_batch(task: Task, data_dir: Path) -> None:
    alone, *parts = (
        list(islice(build(task, data_dir, rank=rank, world_size=size).batches(0, 0), 4))
        for rank, size in ((0, 1), (0, 2), (1, 2))
    )
    for whole, *shares in zip(alone, *parts, strict=True):
        assert rows(whole) == sorted(row for share in shares for row in rows(share))
        assert len(shares[0][0]) == len(shares[1][0])


@each_task
def test_two_ranks_evaluate_what_one_does(task: Task, data_dir: Path) -> None:
    sums = [
        build(task, data_dir, rank=rank, world_size=size).evaluate()["loss"]
        for rank, size in ((0, 1), (0, 2), (1, 2))
    ]
    assert sums[0][1] == sums[1][1] + sums[2][1] > 0
    torch.testing.assert_close(sums[0][0], sums[1][0] + sums[2][0])


@pytest.mark.parametrize("task", [WIKITEXT2, MULTI30K], ids=lambda task: task.name)
def test_the_test_split_is_another_one(task: Task, data_dir: Path) -> None:
    experiment = build(task, data_dir)
    valid, test = (experiment.evaluate(test=test)["loss"] for test in (False, True))
    assert test[1] > 0
    assert float(valid[0]) != float(test[0])


@pytest.mark.parametrize("task", [SHAKESPEARE, MULTI30K, FINEWEB_GPT2], ids=lambda task: task.name)
def test_epochs_differ(task: Task, data_dir: Path) -> None:
    experiment = build(task, data_dir)
    first, second = (next(experiment.batches(epoch, 0)) for epoch in (0, 1))
    assert rows(first) != rows(second)


@each_task
def test_the_loss_of_a_new_model_is_that_of_guessing(task: Task, data_dir: Path) -> None:
    experiment: Experiment = build(task, data_dir)
    total, count = experiment.evaluate()["loss"]
    (model,) = experiment.players.values()
    words = next(p for p in model.parameters() if p.ndim == 2).shape[0]
    assert float(total) / count == pytest.approx(math.log(words), rel=0.15)
    assert model.training


@each_task
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_few_steps_lower_the_loss(task: Task, precision: str, data_dir: Path) -> None:
    experiment = build(task, data_dir)
    (model,) = experiment.players.values()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

    def take(player: str, loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.clear_autocast_cache()  # as the loop does: it has weights of before the step

    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
        before, count = experiment.evaluate()["loss"]
        for batch in islice(experiment.batches(0, 0), 12):
            experiment.advance(batch, take)
        after, _ = experiment.evaluate()["loss"]
    assert float(after) / count < float(before) / count - 0.1
