"""The step if the fan-in is sharded: local sums, one all-reduce per process group, new rows."""

from collections.abc import Mapping, Sequence

import torch

from nero.backends import Backend, plain
from nero.core.gram import Gram
from nero.core.update import Update
from nero.distributed.collectives import all_reduce_flat


def step_(updates: Sequence[Update], backends: Mapping[str, Backend]) -> None:
    """Update, in place, the weights and state of parameters whose fan-in is sharded.

    All ranks pass the same parameters in the same order, with a gradient or without. A gradient that is
    missing on some ranks counts as zeros there; a parameter without any gradient does not change, as at
    ``lr = 0``. No rank waits for its device to find out.
    """
    by_backend: dict[str, list[int]] = {}
    for i, update in enumerate(updates):
        by_backend.setdefault(update.backend, []).append(i)
    products: dict[int, Gram] = {}
    for name, indices in by_backend.items():
        products |= zip(indices, backends[name].gram([updates[i] for i in indices]), strict=True)
    buffers = []
    for i, update in enumerate(updates):
        sums = products[i].sums
        buffers.append(torch.cat([sums.flatten(), sums.new_full((1,), float(update.has_grad))]))
    reduced = all_reduce_flat(buffers, [update.reduce_over for update in updates])
    active, turns = [], []
    for i, (update, sums) in enumerate(zip(updates, reduced, strict=True)):
        lr = torch.as_tensor(update.lr, dtype=sums.dtype, device=sums.device)
        lr = torch.where(sums[-1] > 0, lr, 0.0)  # sums[-1]: the number of ranks with a gradient
        active.append(update._replace(lr=lr))
        shape = update.state["exp_avg_norm"].shape
        total = Gram(sums[:-1].view(-1, *shape), products[i].rows)
        turns.append(plain.turn_of(active[-1], total))
    for name, indices in by_backend.items():
        backends[name].apply_([active[i] for i in indices], [turns[i] for i in indices])
