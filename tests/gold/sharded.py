"""The sharded cases of the gold record, on real gloo ranks."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import nero
from nero.baselines import Lamb, Lars, Madam
from tests.distributed.ranks import on_ranks
from tests.gold.cases import BuildOptimizer, build_nero
from tests.gold.networks import NETWORKS, seeded
from tests.gold.trajectory import (
    SHORT,
    Gradients,
    assign_gradients,
    base_rates,
    tensors_of,
    train,
)


@dataclass(frozen=True)
class ShardedCase:
    """One trajectory on several ranks; every rank records what it holds."""

    name: str
    world_size: int
    shard: Callable[[nn.Module], nn.Module]
    build: BuildOptimizer
    gradients: Gradients

    def run_on_this_rank(self) -> dict[str, Tensor]:
        """Return the weights and the optimizer state that this rank holds after the last step."""
        whole = seeded(NETWORKS["sharded"]())
        model = self.shard(seeded(NETWORKS["sharded"]()))
        optimizer = self.build(model)
        placed = dict(model.named_parameters())

        def set_gradients(step: int) -> None:
            grads = self.gradients.draw(whole, step)
            assign_gradients(model, {name: _placed(grads[name], placed[name]) for name in grads})

        train(
            optimizer,
            optimizer.step,
            rates=base_rates(optimizer),
            steps=SHORT,
            set_gradients=set_gradients,
        )
        return tensors_of(model, optimizer)


def run_on_ranks(cases: Sequence[ShardedCase]) -> dict[str, dict[str, Tensor]]:
    """Run cases of one world size; return case -> tensor name -> tensor, names led by the rank."""
    (world_size,) = {case.world_size for case in cases}
    names = [case.name for case in cases]
    found: dict[str, dict[str, Tensor]] = {name: {} for name in names}
    with tempfile.TemporaryDirectory() as folder:
        on_ranks(world_size, _save, names, folder)
        for rank in range(world_size):
            for name, tensors in torch.load(Path(folder, f"{rank}.pt")).items():
                found[name] |= {f"rank {rank} {key}": value for key, value in tensors.items()}
    return found


def _save(names: list[str], folder: str) -> None:
    torch.save(
        {name: SHARDED[name].run_on_this_rank() for name in names},
        Path(folder, f"{dist.get_rank()}.pt"),
    )


def _placed(whole: Tensor | None, param: Tensor) -> Tensor | None:
    """Return this rank's gradient, placed as its parameter is."""
    if whole is None or not isinstance(param, DTensor):
        return whole
    # With FSDP over tensor parallelism, the second mesh dim cuts first.
    piece = whole
    for mesh_dim in reversed(range(param.device_mesh.ndim)):
        dim = getattr(param.placements[mesh_dim], "dim", None)
        if dim is not None:
            parts = piece.chunk(param.device_mesh.size(mesh_dim), dim)
            rank = param.device_mesh.get_local_rank(mesh_dim)
            piece = parts[rank] if rank < len(parts) else piece.narrow(dim, 0, 0)
    return DTensor.from_local(
        piece.contiguous().clone(),
        param.device_mesh,
        param.placements,
        run_check=False,
        shape=param.shape,
        stride=param.stride(),
    )


def _fsdp(model: nn.Module) -> nn.Module:
    return fully_shard(model)


def _fsdp_dim_1(model: nn.Module) -> nn.Module:
    return fully_shard(model, shard_placement_fn=lambda p: Shard(1 if p.ndim > 1 else 0))


def _hsdp(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    return fully_shard(model, mesh=mesh)


def _tp(model: nn.Module) -> nn.Module:
    return parallelize_module(model, init_device_mesh("cpu", (2,)), _tp_plan())


def _fsdp_tp(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
    parallelize_module(model, mesh["tp"], _tp_plan())
    return fully_shard(model, mesh=mesh["fsdp"])


def _tp_plan() -> dict[str, ColwiseParallel | RowwiseParallel]:
    return {"wide": ColwiseParallel(), "narrow": RowwiseParallel()}


SHARDINGS = {
    "FSDP": (2, _fsdp),
    "FSDP on dim 1": (2, _fsdp_dim_1),
    "TP": (2, _tp),
    "HSDP 2x2": (4, _hsdp),
    "FSDP+TP 2x2": (4, _fsdp_tp),
}
NONFINITE = Gradients(nonfinite_steps=(16, 23))
NERO: dict[str, BuildOptimizer] = {
    "kernel": build_nero(),
    "plain, initial": build_nero(fused=False, constraint="initial"),
}
OTHERS: dict[str, BuildOptimizer] = {
    "Lamb": lambda model: Lamb(model, lr=0.01),
    "Lars": lambda model: Lars(model, lr=1.0),
    "Madam": Madam,
    "Balanced SGD": lambda model: nero.Balanced(
        torch.optim.SGD(nero.param_groups(model), lr=0.05, foreach=False)
    ),
}


def _cases() -> list[ShardedCase]:
    found = [
        ShardedCase(f"{sharding}, {name}", *SHARDINGS[sharding], build, NONFINITE)
        for sharding in SHARDINGS
        for name, build in NERO.items()
    ]
    for name, build in OTHERS.items():
        found.append(ShardedCase(f"FSDP, {name}", *SHARDINGS["FSDP"], build, Gradients()))
    lamb = OTHERS["Lamb"]
    found.append(ShardedCase("FSDP+TP 2x2, Lamb", *SHARDINGS["FSDP+TP 2x2"], lamb, Gradients()))
    return found


SHARDED = {case.name: case for case in _cases()}
