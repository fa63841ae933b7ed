"""One optimiser step on a cluster that is not there."""

import contextlib
import copy
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn

from nero.core.sharding import to_local
from nero.planning.contenders import CONTENDERS
from nero.planning.count import CountTraffic, Traffic, state_bytes
from nero.planning.mesh import Ranks
from nero.planning.shard import PlanError, on_meta, shard_


@dataclass(frozen=True)
class StepCost:
    """What one optimiser holds, and what one step of it sends, on rank 0."""

    state_bytes: int
    num_collectives: int
    communicated_bytes: int
    collectives: dict[str, int]
    """How many collectives of each kind."""
    seconds: float
    """That it took to find out; it says nothing of a real step."""


@dataclass(frozen=True)
class Plan:
    """What every optimiser costs on one mesh."""

    model: str
    ranks: Ranks
    num_parameters: int
    parameter_bytes: int
    """On rank 0."""
    costs: dict[str, StepCost] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """Optimisers that cannot take a step on this mesh, and why."""


def plan(
    model: nn.Module,
    ranks: Ranks,
    *,
    name: str = "model",
    optimizers: Iterable[str] = tuple(CONTENDERS),
    on_progress: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Count what a step costs on every rank, without the ranks and without memory for the weights.

    The model is cut among ``ranks`` on the meta device, in a process group of torch's that sends nothing,
    and every optimiser takes one whole step on what rank 0 holds.

    Args:
        model: any model; it is copied first.
        ranks: the mesh.
        name: what the result calls the model.
        optimizers: names of `CONTENDERS`.
        on_progress: is told what is being done.

    Raises:
        PlanError: if the model cannot be cut so, or a process group exists already.

    Note:
        An optimiser that cannot take a step on this mesh, such as torch's Muon with more ranks than rows,
        is left out, and ``left_out`` says why.

    Example:
        >>> from nero.planning import MODELS, Ranks, plan
        >>> costs = plan(MODELS["llama-tiny"](), Ranks(fsdp=4), optimizers=["nero", "adamw"]).costs
        >>> costs["nero"].num_collectives, costs["nero"].state_bytes, costs["adamw"].state_bytes
        (0, 1092, 39316)
    """
    with fake_ranks(ranks.size):
        on_progress("cutting")
        cut = shard_(on_meta(copy.deepcopy(model)), ranks)
        params = [*cut.parameters()]
        result = Plan(
            name,
            ranks,
            num_parameters=sum(p.numel() for p in params),
            parameter_bytes=sum(to_local(p).nbytes for p in params),
        )
        for optimizer in optimizers:
            tell = partial(_tell, on_progress, optimizer)
            try:
                result.costs[optimizer] = step_cost(cut, optimizer, on_progress=tell)
            except (PlanError, RuntimeError, ValueError) as error:
                result.left_out[optimizer] = str(error).partition("\n")[0]
    return result


def step_cost(
    model: nn.Module, optimizer: str, *, on_progress: Callable[[str], None] = lambda _: None
) -> StepCost:
    """Take one step with gradients of zero, and count; on a real process group as on a simulated one."""
    start = time.perf_counter()
    on_progress("building")
    for param in model.parameters():
        param.grad = torch.zeros_like(param) if param.requires_grad else None
    rivals = CONTENDERS[optimizer](model)

    def tell(traffic: Traffic) -> None:
        if traffic.num_collectives % 50 == 0:
            on_progress(f"{traffic.num_collectives:,} collectives")

    on_progress("stepping")
    with CountTraffic(tell) as counter:
        for rival in rivals:
            rival.step()
    traffic = counter.traffic
    return StepCost(
        state_bytes(rivals),
        traffic.num_collectives,
        traffic.num_bytes,
        traffic.calls,
        seconds=time.perf_counter() - start,
    )


@contextlib.contextmanager
def fake_ranks(world_size: int) -> Iterator[None]:
    """Be rank 0 of a process group whose collectives do nothing."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise PlanError("planning makes a process group of its own, but there is one already")
    # Torch advises on how to redistribute; what is counted here is what it does.
    advice = logging.getLogger("torch.distributed.tensor")
    level = advice.level
    advice.setLevel(logging.ERROR)
    dist.init_process_group("fake", rank=0, world_size=world_size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
        advice.setLevel(level)


def _tell(on_progress: Callable[[str], None], who: str, what: str) -> None:
    on_progress(f"{who}: {what}")
