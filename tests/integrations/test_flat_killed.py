"""Ranks are killed again and again while they train; their losses are those of an unbroken run."""

import json
import os
import random
import signal
import time
from itertools import islice, pairwise
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from nero import Nero
from tests.distributed.flat_network import batch, loss_of, network
from tests.distributed.ranks import on_ranks, start_ranks
from tests.integrations.zero_engines import started

NUM_CYCLES = 5
SAVE_EVERY = 2


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ZeRO-1", "ZeRO-2", "ZeRO-3", "FSDP1"])
def test_killed_runs_lose_nothing(engine, tmp_path):
    losses, seed = tmp_path / "losses", random.Random(0)
    losses.touch()
    for _ in range(NUM_CYCLES):
        kill_after(
            seed.randint(3, 9), losses, start_ranks(2, train_until_killed, engine, str(tmp_path))
        )
    on_ranks(2, finish, engine, str(tmp_path))


def kill_after(num_steps, losses, ranks):
    """Wait for this many more losses, and for a moment that no rank chose."""
    enough = count(losses) + num_steps
    deadline = time.monotonic() + 300
    while count(losses) < enough:
        assert time.monotonic() < deadline
        assert all(process.is_alive() for process in ranks.processes)
        time.sleep(0.003)
    for pid in ranks.pids():
        os.kill(pid, signal.SIGKILL)
    for process in ranks.processes:
        process.join()
    assert [process.exitcode for process in ranks.processes] == [-signal.SIGKILL] * 2


def count(losses):
    return losses.read_text().count("\n")


class Zero:
    """A run under DeepSpeed, and its checkpoints."""

    def __init__(self, stage):
        model = network()
        optimizer = Nero(model, preset="rows", constraint="initial", fused=False)
        self.model = started(model, optimizer, stage)[0]

    def update(self, loss):
        self.model.backward(loss)
        self.model.step()

    def save(self, folder, step):
        self.model.save_checkpoint(folder, tag=str(step), client_state={"step": step})

    def load(self, folder):
        """The next step: that after the last whole checkpoint."""
        return self.model.load_checkpoint(folder)[1]["step"]


class Fsdp1:
    """The same under FSDP1, where each rank saves the state of its own ranges."""

    def __init__(self):
        from torch.distributed.fsdp import FullyShardedDataParallel

        self.model = FullyShardedDataParallel(
            network(), use_orig_params=True, device_id=torch.device("cpu")
        )
        self.optimizer = Nero(self.model, preset="rows", constraint="initial", fused=False)

    def update(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def save(self, folder, step):
        weights = self.model.state_dict()  # whole on every rank
        own = Path(folder, f"{step}-{dist.get_rank()}.pt")
        torch.save({"model": weights, "optimizer": self.optimizer.state_dict()}, own)
        dist.barrier()
        if dist.get_rank() == 0:
            Path(folder, "new").write_text(str(step))
            Path(folder, "new").replace(Path(folder, "latest"))

    def load(self, folder):
        step = int(Path(folder, "latest").read_text())
        saved = torch.load(Path(folder, f"{step}-{dist.get_rank()}.pt"))
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        return step


def new_run(engine):
    return Fsdp1() if engine == "FSDP1" else Zero(int(engine[-1]))


def train(run, folder=None, first=0):
    for step in range(first, 100_000):
        loss = loss_of(run.model, *batch(step))
        run.update(loss)
        if folder and (step + 1) % SAVE_EVERY == 0:
            run.save(folder, step + 1)
        yield step, loss.item()


def train_until_killed(engine, folder, num_steps=None):
    run = new_run(engine)
    dist.barrier()
    first = run.load(folder) if Path(folder, "latest").exists() else 0
    with Path(folder, "losses").open("a") as file:
        for step, loss in islice(train(run, folder, first), num_steps):
            if dist.get_rank() == 0:
                print(json.dumps([step, loss]), file=file, flush=True)


def finish(engine, folder):
    train_until_killed(engine, folder, num_steps=3)
    dist.barrier()  # until the first rank has written its last line
    lines = Path(folder, "losses").read_text().splitlines()
    losses = [tuple(json.loads(line)) for line in lines]
    num_steps = max(step for step, _ in losses) + 1
    unbroken = dict(islice(train(new_run(engine)), num_steps))
    if dist.get_rank() == 0:
        assert set(losses) == set(unbroken.items())  # a step that ran again had the same loss
        starts = [step for (before, _), (step, _) in pairwise(losses) if step <= before]
        assert len(losses) > num_steps or starts == []
        print(
            f"{engine}: {NUM_CYCLES} kills, {len(losses)} steps for {num_steps}, back to {starts}"
        )
