"""All ranks are killed while they train under ZeRO-2; the resumed run has the losses of an unbroken one."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch.distributed as dist

from nero import Nero
from tests.distributed.flat_network import batch, loss_of, network
from tests.distributed.ranks import on_ranks, start_ranks
from tests.integrations.zero_engines import started

SAVED, KILLED, NUM_STEPS = 3, 5, 8


@pytest.mark.slow
def test_a_killed_run_resumes_exactly(tmp_path):
    killed = start_ranks(2, train_until_killed, str(tmp_path))
    losses, deadline = tmp_path / "losses", time.monotonic() + 300
    while not losses.exists() or len(losses.read_text().splitlines()) < KILLED:
        assert time.monotonic() < deadline
        assert all(process.is_alive() for process in killed.processes)
        time.sleep(0.01)
    for pid in killed.pids():
        os.kill(pid, signal.SIGKILL)
    for process in killed.processes:
        process.join()
    assert [process.exitcode for process in killed.processes] == [-signal.SIGKILL] * 2
    on_ranks(2, resume_on_rank, str(tmp_path))


def new_engine():
    model = network()
    return started(model, Nero(model, preset="rows", constraint="initial", fused=False), 2)[0]


def train(engine, steps):
    for step in steps:
        loss = loss_of(engine, *batch(step))
        engine.backward(loss)
        engine.step()
        yield loss.item()


def train_until_killed(folder):
    engine = new_engine()
    for step, loss in enumerate(train(engine, range(100_000))):
        if step + 1 == SAVED:
            engine.save_checkpoint(folder, tag="saved")
        if dist.get_rank() == 0:
            with Path(folder, "losses").open("a") as file:
                print(loss, file=file, flush=True)


def resume_on_rank(folder):
    unbroken = [*train(new_engine(), range(NUM_STEPS))]
    engine = new_engine()
    engine.load_checkpoint(folder, tag="saved")
    resumed = [*train(engine, range(SAVED, NUM_STEPS))]
    assert resumed == unbroken[SAVED:]
    if dist.get_rank() == 0:
        before = [float(line) for line in Path(folder, "losses").read_text().splitlines()]
        assert before[:KILLED] == unbroken[:KILLED]
        print(f"killed after {len(before)} steps; resumed from step {SAVED}: {resumed}")
