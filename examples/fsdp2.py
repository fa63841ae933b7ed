"""Train a small GPT with FSDP2 and Nero, and resume from a sharded checkpoint.

    torchrun --nproc-per-node 2 examples/fsdp2.py --steps 20
    torchrun --nproc-per-node 4 examples/fsdp2.py --steps 40     # resumes at step 20, on more ranks

The GPT comes with nero-tools, and the text that it learns is this file. Nothing here is special to Nero but
the line that builds it, after `fully_shard`: it must see the sharded parameters.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode

from nero import Nero
from nero_tools.models import GPT

CONTEXT, BATCH = 64, 8


def main() -> None:
    """Parse the command line, and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--checkpoint", type=Path, default=Path("fsdp2-checkpoint"))
    options = parser.parse_args()

    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(0)
    model = GPT(width=64, num_layers=2, num_heads=4, vocabulary=256, context=CONTEXT).to(device)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = Nero(model)

    first = resume(options.checkpoint, model, optimizer)
    text = torch.tensor(list(Path(__file__).read_bytes()), device=device)
    for step in range(first + 1, options.steps + 1):
        loss, num_collectives = train_step(model, optimizer, text, step)
        if dist.get_rank() == 0 and step % 5 == 0:
            print(
                f"step {step:3d}   loss {loss:.3f}   collectives in optimizer.step(): {num_collectives}"
            )
    if options.steps > first:
        checkpoint(options.checkpoint, model, optimizer, options.steps)
    dist.destroy_process_group()


def train_step(model: nn.Module, optimizer: Nero, text: Tensor, step: int) -> tuple[float, int]:
    """Take one step, on a batch that every rank draws for itself; return the mean loss."""
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=generator)
    batch = torch.stack([text[s : s + CONTEXT + 1] for s in starts])
    optimizer.zero_grad()
    logits = model(batch[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    with CommDebugMode() as communication:
        optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size(), communication.get_total_counts()


def checkpoint(directory: Path, model: nn.Module, optimizer: Nero, step: int) -> None:
    """Write a checkpoint that any number of ranks can read.

    Each has a directory of its own: a job that is killed while it writes leaves the older ones whole.
    """
    weights, state = get_state_dict(model, optimizer)
    save({"model": weights, "optimizer": state}, checkpoint_id=directory / f"step-{step:06d}")


def resume(directory: Path, model: nn.Module, optimizer: Nero) -> int:
    """Read the newest checkpoint that is complete, if there is one, and return its step."""
    complete = sorted(file.parent for file in directory.glob("step-*/.metadata"))  # written last
    if not complete:
        return 0
    weights, state = get_state_dict(model, optimizer)
    load({"model": weights, "optimizer": state}, checkpoint_id=complete[-1])
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    return int(complete[-1].name.removeprefix("step-"))


if __name__ == "__main__":
    main()
