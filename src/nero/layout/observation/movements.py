"""Operations that move numbers: views, copies, rows that are looked up, tensors that are joined."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from nero.layout.observation.axes import Axes, broadcast, resized, through_view
from nero.layout.observation.handlers import handles
from nero.layout.observation.observer import Call, Observer, tensors_in


@handles("embedding")
def _embedding(observer: Observer, call: Call, is_data: bool) -> None:
    ndim = call.result.ndim
    _gather(observer, call, is_data, lambda axes: ((),) * (ndim - 1) + axes[1:])


handles("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")(_embedding)


@handles("gather", "index_select", "take_along_dim")
def _gather_along(observer: Observer, call: Call, is_data: bool) -> None:
    dim = call.arg(1, "dim") % call.args[0].ndim
    _gather(observer, call, is_data, lambda axes: (*axes[:dim], (), *axes[dim + 1 :]))


@handles("index")
def _index(observer: Observer, call: Call, is_data: bool) -> None:
    places = [d for d, index in enumerate(call.args[1]) if index is not None]
    taken = sum(max(1, _mask_ndim(call.args[1][d])) for d in places)
    wide = call.result.ndim - (call.args[0].ndim - taken)
    at = places[0] if places == [*range(places[0], places[-1] + 1)] else 0

    def indexed(axes: Axes) -> Axes:
        kept = [axes[d] for d in range(len(axes)) if d not in places]
        return (*kept[:at], *((),) * wide, *kept[at:])[: call.result.ndim]

    _gather(observer, call, is_data, indexed)


def _mask_ndim(index: Tensor) -> int:
    return index.ndim if index.dtype in (torch.bool, torch.uint8) else 0


def _gather(
    observer: Observer, call: Call, is_data: bool, axes_after: Callable[[Axes], Axes]
) -> None:
    """Follow rows that are looked up; until more is seen, all that is left is one vector."""
    gathered = []
    for source in observer.sources(call.args[0]):
        row = source.seen(axes_after(source.axes))
        if source.stage == "weight":
            sighting = observer.see(source, "embedding", call.name, row.dims(), is_settled=False)
            sighting.looked_up_at = observer.num_layers
            row = replace(row, stage="row", sighting=sighting)
        gathered.append(row)
    observer.mark(call.out, gathered, is_data=is_data)


VIEW_COPIES = ("_unsafe_view", "view_copy", "reshape", "_reshape_alias")
"""Views that torch may have to copy."""


def follow_view(observer: Observer, call: Call, is_data: bool) -> None:
    """Follow a view, by taking the same view of a contiguous tensor."""
    tensor = call.args[0]
    probe = torch.empty(tensor.shape, device="meta")
    views = tensors_in(call.func(probe, *call.args[1:], **call.kwargs))
    for out, view in zip(tensors_in(call.out), views, strict=True):
        sources = [
            s.seen(through_view(s.axes, tensor.shape, view)) for s in observer.sources(tensor)
        ]
        observer.mark(out, sources, is_data=is_data)


@handles(
    "detach", "alias", "lift_fresh", "_conj", "conj_physical", "clone", "_to_copy", "contiguous"
)
@handles("native_dropout", "bernoulli", "flip", "roll", "tril", "triu", "cumsum", "_log_softmax")
@handles("repeat", "repeat_interleave", "constant_pad_nd", "avg_pool2d", "grid_sampler_2d")
@handles("upsample_nearest1d", "upsample_nearest2d", "upsample_linear1d", "upsample_trilinear3d")
@handles("upsample_bilinear2d", "upsample_bicubic2d")
@handles("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def _same_dims(observer: Observer, call: Call, is_data: bool) -> None:
    out = call.result
    sources = [
        s.seen(resized(broadcast(s.axes, out.ndim), out.shape))
        for s in observer.sources(call.args[0])
    ]
    observer.mark(call.out, sources, is_data=is_data)


@handles("cat", "stack")
def _concatenate(observer: Observer, call: Call, is_data: bool) -> None:
    out, dim = call.result, call.arg(1, "dim", 0)
    sources = []
    for tensor in call.args[0]:
        for source in observer.sources(tensor):
            axes = list(source.axes)
            if call.name == "stack":
                axes.insert(dim % out.ndim, ())
            if len(axes) == out.ndim:
                moved = source.seen(resized(tuple(axes), out.shape))
                sources.append(observer.join(moved, call.name) if is_data else moved)
    observer.mark(call.out, sources, is_data=is_data)


@handles("index_put", "masked_scatter", "slice_scatter", "select_scatter")
def _scatter(observer: Observer, call: Call, is_data: bool) -> None:
    out = call.result
    sources = []
    for tensor in tensors_in((call.args[0], call.args[2] if len(call.args) > 2 else ())):
        for source in observer.sources(tensor):
            if len(source.axes) <= out.ndim:
                wide = source.seen(broadcast(source.axes, out.ndim))
                sources.append(observer.join(wide, call.name) if is_data else wide)
    observer.mark(call.out, sources, is_data=is_data)


@handles("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like")
@handles("new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided")
def _like(observer: Observer, call: Call, is_data: bool) -> None:
    """Asks for a shape only."""
