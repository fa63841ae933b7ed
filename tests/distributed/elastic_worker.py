"""Trains under torchrun, kills itself where it is told to, and resumes from its newest complete checkpoint.

    torchrun --nproc-per-node 2 --max-restarts 3 -m tests.distributed.elastic_worker DIRECTORY

``DIRECTORY/kills.json`` lists the kills, each to be used once. The result is ``DIRECTORY/result.pt``.
"""

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import CosineAnnealingLR

import nero.distributed.collectives
from nero import Nero
from tests.distributed.ranks import OPTIONS, gradients, network, sharded_grad

NUM_STEPS, SAVE_EVERY = 24, 4


@dataclass(frozen=True)
class Kill:
    """One SIGKILL."""

    kind: str
    """One of the moments that `Kills.here` is asked about."""
    step: int
    """The step that is being taken or saved, or that was the last one; the first is 1."""
    rank: int


class Kills:
    """The kills that this process has still to die of."""

    def __init__(self, directory: Path):
        plan = directory / "kills.json"
        self.step = 0
        self.markers = {}
        for index, entry in enumerate(json.loads(plan.read_text()) if plan.exists() else []):
            kill, marker = Kill(**entry), directory / f"used-{index}.json"
            if kill.rank == dist.get_rank() and not marker.exists():
                self.markers[kill] = marker

    def here(self, kind):
        """Die, if that is planned for this moment of the present step."""
        kill = Kill(kind, self.step, dist.get_rank())
        if kill in self.markers:
            record = {**asdict(kill), "restart": _restart()}
            self.markers[kill].write_text(json.dumps(record))
            os.kill(os.getpid(), signal.SIGKILL)


def main(directory: Path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    kills = Kills(directory)
    model = fully_shard(network())
    optimizer = Nero(model, momentum=0.9, direction="polar", **OPTIONS)
    scheduler = CosineAnnealingLR(optimizer, T_max=NUM_STEPS, eta_min=1e-3)
    nero.distributed.collectives.all_reduce = _deadly_all_reduce(kills)

    kills.step = resume(directory, model, optimizer, scheduler)
    for grads in gradients(network(), NUM_STEPS)[kills.step :]:
        kills.step += 1
        for name, param in model.named_parameters():
            param.grad = sharded_grad(grads[name], param)
        optimizer.step()
        scheduler.step()
        if kills.step % SAVE_EVERY == 0:
            save(directory / f"step-{kills.step:03d}", model, optimizer, scheduler, kills)
        kills.here("between steps")
    write_result(directory, model, optimizer, scheduler)
    dist.destroy_process_group()


def save(path, model, optimizer, scheduler, kills):
    """Write a sharded checkpoint, and live to see it, perhaps."""
    weights, state = get_state_dict(model, optimizer)
    writer = dcp.FileSystemWriter(path)
    writer.fs = _DeadlyDisk(kills)
    dcp.save(
        {"model": weights, "optimizer": state, "scheduler": scheduler},
        storage_writer=writer,
        planner=_DeadlyPlanner(kills),
    )


def resume(directory, model, optimizer, scheduler):
    """Load the newest complete checkpoint, and return its step."""
    paths = sorted(directory.glob("step-*"))
    complete = [path for path in paths if (path / ".metadata").exists()]
    step = int(complete[-1].name.removeprefix("step-")) if complete else 0
    if dist.get_rank() == 0:
        incomplete = [path.name for path in paths if path not in complete]
        start = {"restart": _restart(), "resumed_at": step, "incomplete": incomplete}
        with (directory / "starts.jsonl").open("a") as file:
            file.write(json.dumps(start) + "\n")
    if complete:
        weights, state = get_state_dict(model, optimizer)
        dcp.load(
            {"model": weights, "optimizer": state, "scheduler": scheduler},
            checkpoint_id=complete[-1],
        )
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    return step


def write_result(directory, model, optimizer, scheduler):
    """Write all that the run has led to, at once or not at all."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, state = get_state_dict(model, optimizer, options=options)
    if dist.get_rank() == 0:
        result = {
            "model": weights,
            "optimizer": state,
            "scheduler": scheduler.state_dict(),
            "lr": [group["lr"] for group in optimizer.param_groups],
        }
        torch.save(result, directory / "result.tmp")
        (directory / "result.tmp").rename(directory / "result.pt")
    dist.barrier()


def _restart():
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def _deadly_all_reduce(kills):
    """Take the all-reduce of `step()` apart, to die before it, while it is under way, and after it."""

    def all_reduce(tensor, mesh, mesh_dim):
        kills.here("before all-reduce")
        under_way = funcol.all_reduce(tensor, "sum", (mesh, mesh_dim))
        kills.here("during all-reduce")
        summed = funcol.wait_tensor(under_way)
        kills.here("after all-reduce")
        return summed

    return all_reduce


class _DeadlyPlanner(dcp.DefaultSavePlanner):
    """Dies when some tensors are in the file of this rank, and the others are not."""

    def __init__(self, kills):
        super().__init__()
        self.kills, self.num_tensors = kills, 0

    def resolve_data(self, write_item):
        data = super().resolve_data(write_item)
        self.num_tensors += isinstance(data, torch.Tensor)
        if self.num_tensors == 5:
            self.kills.here("saving data")
        return data


class _DeadlyDisk(FileSystem):
    """Dies when all data is written, and the metadata is about to get its name; only rank 0 gives it."""

    def __init__(self, kills):
        self.kills = kills

    def rename(self, path, new_path):
        self.kills.here("saving metadata")
        super().rename(path, new_path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
