"""The step of neurons that several ranks share: sums, one all-reduce per process group, new rows."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from nero.backends import NeroTask, plain
from nero.distributed.add_up import add_up
from nero.functional import NeuronSums


class Crossing(NamedTuple):
    """A parameter whose neurons this rank shares with others.

    All ranks name the same parameters in the same order, whether they have a gradient or not.
    """

    task: NeroTask
    """What this rank holds; zeros where it has no gradient."""
    has_grad: bool
    fan_in: int
    """Of the whole neuron."""
    mesh: DeviceMesh
    mesh_dims: tuple[int, ...]
    """The mesh dims over which the sums must be added up."""


def step_(crossings: Sequence[Crossing]) -> None:
    """Update, in place, the weights and state of every task.

    A parameter that has a gradient on some ranks only takes zeros for the others; one that has none
    anywhere is left alone, as by a step at ``lr = 0``. No rank waits for its device to find out.
    """
    for crossing, buffer in zip(crossings, _added_up(crossings), strict=True):
        task, shape = crossing.task, crossing.task.avg_norm.shape
        sums, num_with_grad = NeuronSums(*buffer[:-1].view(5, *shape)), buffer[-1]
        lr = torch.as_tensor(task.options.lr, dtype=buffer.dtype, device=buffer.device)
        lr = torch.where(num_with_grad > 0, lr, 0.0)
        active = task._replace(options=task.options._replace(lr=lr))
        plain.finish_(active, plain.turn_of(active, sums, fan_in=crossing.fan_in))


def _added_up(crossings: Sequence[Crossing]) -> list[Tensor]:
    """Return the five sums of each parameter, and on how many ranks it has a gradient, flat."""
    buffers = []
    for crossing in crossings:
        sums = plain.sums_of(crossing.task)
        assert sums is not None
        flag = sums.grad_sq.new_full((1,), float(crossing.has_grad))
        buffers.append(torch.cat([torch.stack(sums).flatten(), flag]))
    return add_up(buffers, [[(c.mesh, dim) for dim in c.mesh_dims] for c in crossings])
