"""Simulate one optimizer step on a cluster."""

import contextlib
import copy
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from nero.baselines import Lamb
from nero.cli.arguments import CommandError
from nero.core.arguments import kind_of
from nero.optim import Nero
from nero_tools.optimizers import Build, muon, num_bytes, state_bytes
from nero_tools.plan.mesh import Ranks
from nero_tools.plan.shard import on_meta, shard_
from nero_tools.plan.zero import flatten, zero_cost


def _alone(build: Callable[..., Optimizer], model: nn.Module) -> list[Optimizer]:
    return [build(model)]


_READING: Mapping[str, Callable[..., Optimizer]] = {
    "nero": Nero,
    "nero-rows": partial(Nero, preset="rows"),
    "nero-rows-bf16": partial(Nero, preset="rows", momentum_dtype="bfloat16"),
    "nero-polar": partial(Nero, preset="polar"),
}
"""Those that read what a model's neurons are, and can watch an example for it."""
OPTIMIZERS: Mapping[str, Build] = {
    **{name: partial(_alone, build) for name, build in _READING.items()},
    "adamw": lambda model: [torch.optim.AdamW(model.parameters())],
    "lamb": lambda model: [Lamb(model)],
    "muon": muon,
}
FLAT_OPTIMIZERS = ("nero", "nero-rows", "nero-rows-bf16", "adamw", "deepspeed-muon")
"""What can be planned under ZeRO."""
_NAMESPACES = {"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"}
_NOT_SENDING = {"wait_tensor", "_wrap_tensor_autograd"}


@dataclass(frozen=True)
class StepCost:
    """What one optimizer holds, and what one step of it sends, on rank 0."""

    state_bytes: int
    num_collectives: int
    communicated_bytes: int
    collectives: dict[str, int]
    """How many collectives of each kind."""
    seconds: float
    """How long the simulation took, which says nothing about a real step."""


@dataclass(frozen=True)
class Plan:
    """What every optimizer costs on one mesh."""

    model: str
    ranks: Ranks
    num_parameters: int
    parameter_bytes: int
    """On rank 0."""
    costs: dict[str, StepCost] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """Optimizers that cannot take a step on this mesh, and why."""
    notes: tuple[str, ...] = ()
    """What the figures leave out."""

    def as_dict(self) -> dict[str, Any]:
        """Return what becomes JSON."""
        return {**asdict(self), "num_ranks": self.ranks.size}


def plan(
    model: nn.Module,
    ranks: Ranks,
    *,
    name: str = "model",
    optimizers: Iterable[str] = (*OPTIMIZERS, "deepspeed-muon"),
    example: Any = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Count what a step costs on every rank, without the ranks and without memory for the weights.

    The model is cut among ``ranks`` on the meta device, in a process group of torch's that sends nothing,
    and every optimizer takes one whole step on what rank 0 holds. One that cannot take a step on this mesh,
    such as torch's Muon with more ranks than rows, is left out, and ``left_out`` says why.

    Args:
        model: the model.
        ranks: what it is cut among.
        name: what the table calls it.
        optimizers: names from `OPTIMIZERS`.
        example: a batch, as [`Nero`][nero.Nero] takes it: it is watched before the model is cut.
        on_progress: called with what is being done.

    Raises:
        CommandError: if the model cannot be cut so, or a process group exists already.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {kind_of(model)}")
    if not isinstance(ranks, Ranks):
        raise TypeError(f"ranks must be Ranks, such as Ranks(fsdp=8), not {ranks!r}")
    optimizers = [*optimizers] if isinstance(optimizers, Iterable) else [optimizers]
    known = dict.fromkeys([*OPTIMIZERS, *FLAT_OPTIMIZERS])
    for each in optimizers:
        if each not in known:
            raise CommandError(f"optimizers must be among {', '.join(known)}, not {each!r}")
    if ranks.zero > 1 or ranks.zero3 > 1:
        return _plan_of_ranges(_copied(model), ranks, name, optimizers, example)
    optimizers = [each for each in optimizers if each in OPTIMIZERS]
    with fake_ranks(ranks.size):
        on_progress("cutting")
        whole, cut = _copied(model), shard_(_copied(model), ranks)
        params = [*cut.parameters()]
        result = Plan(name, ranks, sum(p.numel() for p in params), num_bytes(params))
        for each in optimizers:
            try:
                built = None
                if example is not None and each in _READING:
                    _set_gradients(cut)
                    built = [_moved(_READING[each](whole, example=example), cut)]
                result.costs[each] = step_cost(cut, each, built, on_progress=on_progress)
            except (CommandError, RuntimeError, TypeError, ValueError) as error:
                result.left_out[each] = str(error).partition("\n")[0]
    return result


def _plan_of_ranges(
    model: nn.Module, ranks: Ranks, name: str, optimizers: Sequence[str], example: Any
) -> Plan:
    """Count what a step costs under ZeRO, from the ranges that ranks hold."""
    stage, num_ranks = (3, ranks.zero3) if ranks.zero3 > 1 else (2, ranks.zero)
    params = [p for p in model.parameters() if p.requires_grad]
    largest = sum(r.size for r in flatten([p.numel() for p in params], num_ranks, stage))
    dtype_size = max((p.element_size() for p in params), default=4)
    result = Plan(name, ranks, sum(p.numel() for p in model.parameters()), largest * dtype_size)
    readers = {each: partial(build, example=example) for each, build in _READING.items()}
    notes = []
    for each in optimizers:
        start = time.perf_counter()
        found = zero_cost(model, num_ranks, stage, readers, each)
        if isinstance(found, str):
            result.left_out[each] = found
            continue
        seconds = time.perf_counter() - start
        kinds = dict(found.collectives)
        result.costs[each] = StepCost(
            found.state_bytes, sum(kinds.values()), found.num_bytes, kinds, seconds
        )
        notes += [found.note] if found.note else []
    return replace(result, notes=tuple(notes))


def _moved(optimizer: Optimizer, cut: nn.Module) -> Optimizer:
    """Swap the parameters of the model that is cut into an optimizer of the whole one, as trainers do.

    A first step takes them in, which may send more than the steps that follow.
    """
    params = dict(cut.named_parameters())
    for group in optimizer.param_groups:
        group["params"] = [params[name] for name in group["param_names"]]
    optimizer.step()
    return optimizer


def _copied(model: nn.Module) -> nn.Module:
    """Return a copy of ``model`` without storage."""
    try:
        return on_meta(copy.deepcopy(model))
    except Exception as error:
        raise CommandError(
            f"the model cannot be copied: {error}; pass one that copy.deepcopy supports"
        ) from error


def step_cost(
    model: nn.Module,
    optimizer: str,
    built: Sequence[Optimizer] | None = None,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
) -> StepCost:
    """Take one step with gradients of zero, and count; on a real process group as on a simulated one."""
    start = time.perf_counter()
    on_progress(f"{optimizer}: building")
    _set_gradients(model)
    built = OPTIMIZERS[optimizer](model) if built is None else built

    def show(num_collectives: int) -> None:
        if num_collectives % 50 == 1:
            on_progress(f"{optimizer}: {num_collectives:,} collectives")

    with CountTraffic(show) as traffic:
        for each in built:
            each.step()
    return StepCost(
        state_bytes=state_bytes(built),
        num_collectives=traffic.calls.total(),
        communicated_bytes=traffic.num_bytes,
        collectives=dict(traffic.calls),
        seconds=time.perf_counter() - start,
    )


def _set_gradients(model: nn.Module) -> None:
    for param in model.parameters():
        param.grad = torch.zeros_like(param) if param.requires_grad else None


class CountTraffic(TorchDispatchMode):
    """Count every collective issued inside this context; they still run.

    A collective counts with the larger of what goes in and what comes out: the buffer of an all-reduce, the
    result of an all-gather, the input of a reduce-scatter. What crosses a wire depends on the algorithm.
    """

    def __init__(self, on_collective: Callable[[int], None] = lambda _: None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()
        """How many collectives of each kind."""
        self.num_bytes = 0
        self._on_collective = on_collective

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        # A DTensor is asked first, so that the collectives that it issues come back here.
        if any(hasattr(kind, "full_tensor") for kind in types):
            return NotImplemented
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        if func.namespace in _NAMESPACES and name not in _NOT_SENDING:
            self.calls[name] += 1
            self.num_bytes += max(map(num_bytes, (*args, out)))
            self._on_collective(self.calls.total())
        return out


@contextlib.contextmanager
def fake_ranks(world_size: int) -> Iterator[None]:
    """Be rank 0 of a process group whose collectives do nothing."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise CommandError(
            "nero plan creates its own process group: call torch.distributed.destroy_process_group() first"
        )
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
