"""Operations that move elements: views, copies, lookups, concatenation."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from nero.layout.observation.axes import Axes, broadcast, resized, through_view
from nero.layout.observation.notes import Call, Handler, Notes, tensors_in


def _embedding(notes: Notes, call: Call) -> None:
    ndim = call.result.ndim
    _gather(notes, call, lambda axes: ((),) * (ndim - 1) + axes[1:])


def _gather_along(notes: Notes, call: Call) -> None:
    dim = call.arg(1, "dim") % call.args[0].ndim
    _gather(notes, call, lambda axes: (*axes[:dim], (), *axes[dim + 1 :]))


def _index(notes: Notes, call: Call) -> None:
    indexed_dims = [d for d, index in enumerate(call.args[1]) if index is not None]
    num_indexed = sum(max(1, _mask_ndim(call.args[1][d])) for d in indexed_dims)
    num_new = call.result.ndim - (call.args[0].ndim - num_indexed)
    is_adjacent = indexed_dims == [*range(indexed_dims[0], indexed_dims[-1] + 1)]
    at = indexed_dims[0] if is_adjacent else 0

    def indexed(axes: Axes) -> Axes:
        kept = [axes[d] for d in range(len(axes)) if d not in indexed_dims]
        return (*kept[:at], *((),) * num_new, *kept[at:])[: call.result.ndim]

    _gather(notes, call, indexed)


def _mask_ndim(index: Tensor) -> int:
    return index.ndim if index.dtype in (torch.bool, torch.uint8) else 0


def _gather(notes: Notes, call: Call, axes_after: Callable[[Axes], Axes]) -> None:
    """Follow looked-up rows; until more is seen, all remaining dims are one vector."""
    gathered = []
    for source in notes.sources(call.args[0]):
        row = source.with_axes(axes_after(source.axes))
        if source.stage == "weight":
            sighting = notes.see(source, "embedding", call.name, row.dims(), is_settled=False)
            sighting.looked_up_at = notes.num_layers
            row = replace(row, stage="row", sighting=sighting)
        gathered.append(row)
    notes.mark(call.out, gathered, is_data=call.is_data)


def follow_view(notes: Notes, call: Call) -> None:
    """Follow a view, by taking the same view of a contiguous tensor."""
    tensor = call.args[0]
    probe = torch.empty(tensor.shape, device="meta")
    views = tensors_in(call.func(probe, *call.args[1:], **call.kwargs))
    for out, view in zip(tensors_in(call.out), views, strict=True):
        sources = [
            s.with_axes(through_view(s.axes, tensor.shape, view)) for s in notes.sources(tensor)
        ]
        notes.mark(out, sources, is_data=call.is_data)


def _same_dims(notes: Notes, call: Call) -> None:
    out = call.result
    sources = [
        s.with_axes(resized(broadcast(s.axes, out.ndim), out.shape))
        for s in notes.sources(call.args[0])
    ]
    notes.mark(call.out, sources, is_data=call.is_data)


def _concatenate(notes: Notes, call: Call) -> None:
    out, dim = call.result, call.arg(1, "dim", 0)
    sources = []
    for tensor in call.args[0]:
        for source in notes.sources(tensor):
            axes = list(source.axes)
            if call.name == "stack":
                axes.insert(dim % out.ndim, ())
            if len(axes) == out.ndim:
                moved = source.with_axes(resized(tuple(axes), out.shape))
                sources.append(notes.join(moved, call.name) if call.is_data else moved)
    notes.mark(call.out, sources, is_data=call.is_data)


def _scatter(notes: Notes, call: Call) -> None:
    out = call.result
    sources = []
    for tensor in tensors_in((call.args[0], call.args[2] if len(call.args) > 2 else ())):
        for source in notes.sources(tensor):
            if len(source.axes) <= out.ndim:
                wide = source.with_axes(broadcast(source.axes, out.ndim))
                sources.append(notes.join(wide, call.name) if call.is_data else wide)
    notes.mark(call.out, sources, is_data=call.is_data)


def _shape_only(notes: Notes, call: Call) -> None:
    """Ignore arguments used only for their shape."""


_SAME_DIMS = (
    *("detach", "alias", "lift_fresh", "_conj", "conj_physical", "clone", "_to_copy", "contiguous"),
    *("native_dropout", "bernoulli", "flip", "roll", "tril", "triu", "cumsum", "_log_softmax"),
    *("repeat", "repeat_interleave", "constant_pad_nd", "avg_pool2d", "grid_sampler_2d"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_linear1d", "upsample_trilinear3d"),
    *("upsample_bilinear2d", "_upsample_bilinear2d_aa"),
    *("upsample_bicubic2d", "_upsample_bicubic2d_aa"),
)
_SHAPE_ONLY = (
    *("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"),
    *("new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided"),
)
_VIEW_COPIES = ("_unsafe_view", "view_copy", "reshape", "_reshape_alias")
_EMBEDDINGS = ("embedding", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
MOVEMENTS: dict[str, Handler] = {
    **dict.fromkeys(_EMBEDDINGS, _embedding),
    **dict.fromkeys(("gather", "index_select", "take_along_dim"), _gather_along),
    "index": _index,
    **dict.fromkeys(_VIEW_COPIES, follow_view),
    **dict.fromkeys(_SAME_DIMS, _same_dims),
    **dict.fromkeys(("cat", "stack"), _concatenate),
    **dict.fromkeys(("index_put", "masked_scatter", "slice_scatter", "select_scatter"), _scatter),
    **dict.fromkeys(_SHAPE_ONLY, _shape_only),
}
