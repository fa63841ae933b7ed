"""Cut a model as torch's own engine cuts it: tensor parallelism first, then FSDP2."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from nero.cli.arguments import CommandError
from nero_tools.plan.mesh import Ranks

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


def shard_(model: nn.Module, ranks: Ranks) -> nn.Module:
    """Cut ``model`` in place among the ranks of the process group, and return it.

    Every block and then the root goes through ``fully_shard``. Copies (``replicate``) without ``fsdp`` hold
    what one of them would hold alone, as under DDP.

    Raises:
        CommandError: if ``tp`` is asked of a model that does not say where to cut, or torch cannot cut it.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import parallelize_module

    sizes = ranks.cut_axes()
    if not sizes:
        return model
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    if ranks.tp > 1:
        ties = tied_names(model)
        styles = parallel_styles(model)
        try:
            parallelize_module(model, mesh["tp"], styles)
        except (NotImplementedError, RuntimeError, ValueError) as error:
            raise CommandError(
                f"torch cannot apply the model's tp_plan, leave tp out of the mesh: {error}"
            ) from error
        retie_(model, ties)
    if ranks.fsdp > 1:
        shard_mesh = mesh["replicate", "fsdp"] if ranks.replicate > 1 else mesh["fsdp"]
        try:
            for part in (*blocks(model), model):
                fully_shard(part, mesh=shard_mesh)
        except ValueError as error:  # such as a scalar parameter
            raise CommandError(f"torch cannot shard the model, leave fsdp out: {error}") from error
    return model


def blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the repeated parts of a model: the members of its outermost containers."""
    for child in model.children():
        if isinstance(model, _CONTAINERS) and not isinstance(child, _CONTAINERS):
            if any(True for _ in child.parameters()):
                yield child
        else:
            yield from blocks(child)


def parallel_styles(model: nn.Module) -> "dict[str, ParallelStyle]":
    """Read the model's ``tp_plan``, an attribute or a method without arguments.

    It maps names, with ``*`` for any one part, to ``"colwise"``, ``"rowwise"`` or a style of torch's.
    Suffixes as in ``"colwise_rep"`` concern activations, so they do not matter here.
    """
    from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

    offered: Any = getattr(model, "tp_plan", None)
    offered = offered() if callable(offered) else offered
    if not offered or not isinstance(offered, Mapping):
        raise CommandError(
            f"{type(model).__name__} has no tensor-parallel plan: leave tp out of the mesh, or give "
            "the model an attribute or method tp_plan, a dict such as "
            '{"blocks.*.up": "colwise", "blocks.*.down": "rowwise"}'
        )
    styles: dict[str, ParallelStyle] = {}
    for name, kind in offered.items():
        words = kind.split("_") if isinstance(kind, str) else []
        if isinstance(kind, ParallelStyle):
            styles[name] = kind
        elif "colwise" in words or "rowwise" in words:
            styles[name] = ColwiseParallel() if "colwise" in words else RowwiseParallel()
        else:
            raise CommandError(
                f"tp_plan maps {name!r} to {kind!r}; it must be colwise, rowwise or a torch ParallelStyle"
            )
    return styles


def tied_names(model: nn.Module) -> list[tuple[str, str]]:
    """Return pairs of names of one and the same parameter."""
    first: dict[nn.Parameter, str] = {}
    named = model.named_parameters(remove_duplicate=False)
    pairs = [(first.setdefault(param, name), name) for name, param in named]
    return [(a, b) for a, b in pairs if a != b]


def retie_(model: nn.Module, ties: list[tuple[str, str]]) -> None:
    """Tie parameters again, in place, after each was replaced separately."""
    for kept, tied in ties:
        owner, _, name = tied.rpartition(".")
        setattr(model.get_submodule(owner), name, model.get_parameter(kept))


def on_meta(model: nn.Module) -> nn.Module:
    """Return ``model`` without storage, its ties kept."""
    ties = tied_names(model)
    if any(not t.is_meta for t in (*model.parameters(), *model.buffers())):
        model.to(torch.device("meta"))
        retie_(model, ties)
    return model
