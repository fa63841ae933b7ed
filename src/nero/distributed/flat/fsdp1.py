"""FSDP1: each unit concatenates its parameters, and every rank holds a range of the result.

With ``use_orig_params=True``, the optimizer sees each parameter's part of the range as a separate 1-D
tensor; otherwise it sees one flat parameter per unit. The unit's handle stores each parameter's position.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel

from nero.core.held import Held, hold_range
from nero.core.neurons import neurons_from_options
from nero.core.warn import listed
from nero.distributed.flat.boxes import Piece
from nero.distributed.flat.holder import FlatRange, Member
from nero.distributed.flat.plan import Ranges, agree
from nero.layout.marks import leave_mark, mark_of

Group = dict[str, Any]


class Source(NamedTuple):
    """Where FSDP1 has put a parameter."""

    flat: Any
    """The unit's flat parameter."""
    place: int
    """The parameter's index in it."""
    handle: Any

    @property
    def param(self) -> Tensor:
        """What the optimizer trains."""
        own: Tensor = self.flat if self.flat._params is None else self.flat._params[self.place]
        return own

    def piece(self, name: str, group: Group, position: int) -> Piece:
        """Return what this rank holds of it."""
        shape = tuple(self.flat._shapes[self.place])
        neurons = neurons_from_options(group, shape)
        info = self.flat._shard_param_infos[self.place]
        if not info.in_shard:
            return Piece(name, shape, neurons, position)
        offset = info.offset_in_shard if self.flat._params is None else 0
        start, stop = info.intra_param_start_idx, info.intra_param_end_idx + 1
        return Piece(name, shape, neurons, position, offset, start, stop)


def sources_of(model: nn.Module) -> dict[Tensor, Source]:
    """Return a stand-in on the meta device for every flattened parameter, in the shape it had."""
    found: dict[Tensor, Source] = {}
    for unit in FullyShardedDataParallel.fsdp_modules(model):
        handle = unit._handle
        if handle is None:
            continue
        flat = handle.flat_param
        for index, shape in enumerate(flat._shapes):
            source = Source(flat, index, handle)
            stand_in = nn.Parameter(
                torch.empty(shape, dtype=flat.dtype, device="meta"), source.param.requires_grad
            )
            mark = mark_of(source.param)
            if mark is not None:
                leave_mark(stand_in, mark)
            found[stand_in] = source
    return found


@contextmanager
def as_before(model: nn.Module, sources: dict[Tensor, Source]) -> Iterator[nn.Module]:
    """Show a model as it was before FSDP1 wrapped it, with stand-ins for its parameters."""
    with ExitStack() as undo:
        for stand_in, source in sources.items():
            flat = source.flat
            info = flat._param_infos[source.place]
            owners = [(info.module, info.param_name)]
            owners += [
                (shared.module, shared.param_name)
                for shared in flat._shared_param_infos
                if (shared.prim_module, shared.prim_param_name) == owners[0]
            ]
            for module, name in owners:
                _swap(undo, module._parameters, name, stand_in)
                if name in vars(module):
                    _swap(undo, vars(module), name, None)
        for parent in [*model.modules()]:
            if "_flat_param" in parent._parameters:
                _swap(undo, parent._parameters, "_flat_param", None)
            for name, child in [*parent._modules.items()]:
                if isinstance(child, FullyShardedDataParallel):
                    _swap(undo, parent._modules, name, child.module)
        yield model.module if isinstance(model, FullyShardedDataParallel) else model


def _swap(undo: ExitStack, names: dict[str, Any], name: str, new: Any) -> None:
    """Replace an entry, or remove it if ``new`` is ``None``, until everything is undone."""
    before = dict(names)

    def restore() -> None:
        names.clear()
        names.update(before)

    undo.callback(restore)
    if new is None:
        del names[name]
    else:
        names[name] = new


def ranges_of(groups: Sequence[Group], sources: dict[Tensor, Source]) -> list[FlatRange]:
    """Return the holders of all parameters of a model, given its param groups with stand-ins.

    All ranks call this. The ranges of all units of a process group are exchanged at once.
    """
    named = [(group, *pair) for group in groups for pair in group["params"]]
    members: dict[int, list[tuple[Source, Piece]]] = {}
    for position, (group, name, stand_in) in enumerate(named):
        source = sources.get(stand_in)  # none for modules that FSDP1 ignores
        if source is not None and source.handle.uses_sharded_strategy:
            piece = source.piece(f"`{name}`", group, position)
            members.setdefault(id(source.param), []).append((source, piece))
    by_group: dict[int, list[list[tuple[Source, Piece]]]] = {}
    for each in members.values():
        by_group.setdefault(id(each[0][0].handle.process_group), []).append(each)
    held = []
    for buffers in by_group.values():
        group = buffers[0][0][0].handle.process_group
        ranges = [Ranges([piece for _, piece in each]) for each in buffers]
        plans = agree(ranges, group, may_lack_gradients=True)
        for each, plan in zip(buffers, plans, strict=True):
            pieces = [Member(piece, {}, {}) for _, piece in each]
            held.append(FlatRange(each[0][0].param, pieces, plan, is_new=True, is_spread=True))
    return held


def groups_of(model: nn.Module, groups_of_whole: Callable[[nn.Module], list[Group]]) -> list[Group]:
    """Return a wrapped model's param groups, and register a holder for each of its parameters.

    Args:
        model: a model with units of FSDP1.
        groups_of_whole: makes the groups of a model that is not wrapped.
    """
    sources = sources_of(model)
    for flat in (source.flat for source in sources.values()):
        if flat._params is None:
            names = listed(flat._fqns, 1)
            raise RuntimeError(
                f"FSDP1 has merged {names} into one flat parameter, whatever their roles; "
                "wrap the model with FullyShardedDataParallel(model, use_orig_params=True), or use FSDP2 "
                "(torch.distributed.fsdp.fully_shard)"
            )
    with as_before(model, sources) as whole:
        groups = groups_of_whole(whole)
    for group in groups:
        for _, stand_in in group["params"]:
            source = sources.get(stand_in)
            if source is not None and not source.handle.uses_sharded_strategy:
                neurons = neurons_from_options(group, stand_in.shape)
                hold_range(Held(source.param, neurons))
    for held in ranges_of(groups, sources):
        hold_range(held)
    return [
        {**group, "params": [(name, _trained(sources, each)) for name, each in group["params"]]}
        for group in groups
    ]


def _trained(sources: dict[Tensor, Source], stand_in: Tensor) -> Tensor:
    return sources[stand_in].param if stand_in in sources else stand_in
