"""What each operation of torch does to the parameters inside its inputs.

Contracted dims are fan-in, a factor is a gain, a term is a bias, a gathered table is an embedding. What
is added to data, or stands beside it, is followed to the first contraction or norm, which shows its
vectors; if a softmax comes first, it was a bias of logits.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from nero.core.neurons import Role
from nero.layout.observation.axes import Axes, broadcast, resized, through_view
from nero.layout.observation.observer import Call, Observer, tensors_in
from nero.layout.observation.sightings import Source

Handler: TypeAlias = Callable[[Observer, Call, bool], None]
_HANDLERS: dict[str, Handler] = {}


def follow(observer: Observer, call: Call, is_data: bool) -> None:
    """Follow the parameters in the inputs of an operation into its outcome.

    Args:
        observer: what has been seen so far.
        call: the operation.
        is_data: whether any input depends on the example.
    """
    handler = _HANDLERS.get(call.name)
    if handler is None and (call.func.is_view or call.name in _VIEW_COPIES):
        handler = _view
    if handler is None and torch.Tag.pointwise in call.func.tags:
        handler = _pointwise
    (handler or _unknown)(observer, call, is_data)


def _handles(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        _HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


# Contractions


@_handles("mm", "bmm", "mv", "dot", "vdot", "matmul", "_grouped_mm", "_scaled_mm")
def _product(observer: Observer, call: Call, is_data: bool) -> None:
    _multiply(observer, call, call.args[0], call.args[1])


@_handles("addmm", "baddbmm", "addbmm", "addmv", "_addmm_activation")
def _sum_of_product(observer: Observer, call: Call, is_data: bool) -> None:
    _elementwise(observer, call.args[0], "bias", call.name)
    _multiply(observer, call, call.args[1], call.args[2])


@_handles("linear")
def _linear(observer: Observer, call: Call, is_data: bool) -> None:
    data, weight = call.args[:2]
    _contract(observer, data, [data.ndim - 1], call.name)
    _contract(observer, weight, [1], call.name)
    _elementwise(observer, call.arg(2, "bias"), "bias", call.name)
    observer.mark(call.out, (), is_data=True)


@_handles("convolution", "_convolution", "convolution_overrideable")
def _convolution(observer: Observer, call: Call, is_data: bool) -> None:
    data, weight, bias = call.args[:3]
    is_transposed, groups = call.args[6], call.args[8]
    _contract(observer, data, [1, *range(2, data.ndim)], call.name)
    for source in observer.sources(weight):
        fan_in = source.dims([0 if is_transposed else 1, *range(2, weight.ndim)])
        observer.see(
            source,
            "neuron" if fan_in else "gain",
            call.name,
            fan_in,
            num_groups=groups if is_transposed else 1,
        )
    _elementwise(observer, bias, "bias", call.name)
    observer.mark(call.out, (), is_data=True)


@_handles("_trilinear")
def _trilinear(observer: Observer, call: Call, is_data: bool) -> None:
    for tensor, expanded in zip(call.args[:3], call.args[3:6], strict=True):
        own = [d for d in range(tensor.ndim + len(expanded)) if d not in expanded]
        summed = [place for place, d in enumerate(own) if d in call.args[6]]
        _contract(observer, tensor, summed, "bilinear")
    observer.mark(call.out, (), is_data=True)


def _attention(observer: Observer, call: Call, is_data: bool) -> None:
    query, key, value = call.args[:3]
    for tensor, dim in ((query, -1), (key, -1), (value, -2)):
        _contract(observer, tensor, [dim % tensor.ndim], "attention", batch=[0, 1])
    for mask in tensors_in((call.args[3:], call.kwargs)):
        for source in observer.sources(mask):
            observer.see(source, "bias", "logits of attention")
    observer.mark(call.out, (), is_data=True)


_handles(
    "scaled_dot_product_attention",
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)(_attention)


def _multiply(observer: Observer, call: Call, left: Tensor, right: Tensor) -> None:
    batch = [0] if "bmm" in call.name else []
    rows = _contract(observer, left, [left.ndim - 1], call.name, batch=batch, partner=right)
    summed = max(right.ndim - 2, 0)
    columns = _contract(observer, right, [summed], call.name, batch=batch, partner=left)
    is_vector = call.name in ("mv", "dot", "vdot")
    if is_vector and (observer.is_constant(left) or observer.is_constant(right)):
        # The power iteration of spectral norm: its outcome is a statistic of the weight.
        none = ((),) * call.result.ndim
        statistics = [s.seen(none) for t in (left, right) for s in observer.sources(t)]
        return observer.mark(call.out, statistics, is_data=False)
    if is_vector or not left.ndim == right.ndim == call.result.ndim:
        return observer.mark(call.out, (), is_data=True)
    rows = [s.seen((*s.axes[:-1], ())) for s in rows]
    columns = [s.seen((*s.axes[:-2], (), s.axes[-1])) for s in columns]
    return observer.mark(call.out, [*rows, *columns], is_data=True)


def _contract(
    observer: Observer,
    tensor: Tensor,
    dims: Sequence[int],
    operation: str,
    *,
    batch: Sequence[int] = (),
    partner: Tensor | None = None,
) -> list[Source]:
    """Note that an operation sums over ``dims`` of a tensor; return what the sum leaves in the data."""
    left_over = []
    is_weak = partner is not None and observer.is_constant(partner)
    for source in observer.sources(tensor):
        others = [d for d in range(len(source.axes)) if d not in dims]
        summed, kept = source.dims(dims), source.dims(others)
        if source.stage == "scaled" or not source.dims():
            continue  # the sum is a later layer's, or a statistic's
        if source.stage == "data":
            if summed and kept and kept == source.dims(batch) and not kept & summed:
                observer.see(source, "bias", f"{operation}, one vector per head")
            elif summed:
                observer.see(source, "embedding", operation, summed)
            elif source.dims([d for d in others if d not in batch]):
                left_over.append(source)
            else:
                observer.see(source, "bias", f"{operation}, one number per head")
        elif source.stage == "row":
            if summed:
                role: Role = "embedding" if kept <= summed else "neuron"
                observer.see(source, role, operation, summed)
        elif summed:
            groups = _size_of_dim_0(source, others) if 0 in summed else 1
            observer.see(source, "neuron", operation, summed, num_groups=groups, is_weak=is_weak)
        else:
            observer.see(source, _factor_role(source), operation)
    return left_over


def _size_of_dim_0(source: Source, dims: Iterable[int]) -> int:
    """Return how much of the parameter's dim 0 these dims walk: as many groups share its inputs."""
    return math.prod(axis.size for d in dims for axis in source.axes[d] if axis.dims == {0})


# Gathers


@_handles("embedding")
def _embedding(observer: Observer, call: Call, is_data: bool) -> None:
    ndim = call.result.ndim
    _gather(observer, call, is_data, lambda axes: ((),) * (ndim - 1) + axes[1:])


_handles("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")(_embedding)


@_handles("gather", "index_select", "take_along_dim")
def _gather_along(observer: Observer, call: Call, is_data: bool) -> None:
    dim = call.arg(1, "dim") % call.args[0].ndim
    _gather(observer, call, is_data, lambda axes: (*axes[:dim], (), *axes[dim + 1 :]))


@_handles("index")
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
            row = replace(row, stage="row", sighting=sighting)
        gathered.append(row)
    observer.mark(call.out, gathered, is_data=is_data)


# Norms, softmax, reductions


@_handles("native_layer_norm", "_fused_rms_norm")
def _layer_norm(observer: Observer, call: Call, is_data: bool) -> None:
    data, normalised = call.args[:2]
    _elementwise(observer, call.arg(2, "weight"), "gain", call.name)
    if call.name == "native_layer_norm":
        _elementwise(observer, call.arg(3, "bias"), "bias", call.name)
    _contract(observer, data, [*range(data.ndim - len(normalised), data.ndim)], call.name)
    observer.mark(call.out, (), is_data=True)


@_handles(
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "_batch_norm_with_update",
    "_batch_norm_no_update",
    "cudnn_batch_norm",
    "native_group_norm",
)
def _batch_norm(observer: Observer, call: Call, is_data: bool) -> None:
    _elementwise(observer, call.arg(1, "weight"), "gain", call.name)
    _elementwise(observer, call.arg(2, "bias"), "bias", call.name)
    joined = [s for s in observer.sources(call.args[0]) if s.stage == "data"]
    observer.mark(call.out, joined, is_data=True)


@_handles("_weight_norm_interface")
def _weight_norm(observer: Observer, call: Call, is_data: bool) -> None:
    _elementwise(observer, call.args[1], "gain", "weight norm")
    observer.mark(call.out[0], observer.sources(call.args[0]), is_data=is_data)


@_handles("_softmax", "softmax", "_safe_softmax")
def _softmax(observer: Observer, call: Call, is_data: bool) -> None:
    open_ones = []
    for source in observer.sources(call.args[0]):
        if source.stage == "data" or (source.stage == "row" and is_data):
            observer.see(source, "bias", "logits of softmax")
        elif source.stage != "scaled":
            open_ones.append(replace(source, is_nonlinear=True))
    observer.mark(call.out, open_ones, is_data=is_data)


@_handles(
    *("sum", "mean", "prod", "var", "std", "var_mean", "logsumexp", "norm", "linalg_vector_norm"),
    *("max", "min", "amax", "amin", "any", "all"),
)
def _reduction(observer: Observer, call: Call, is_data: bool) -> None:
    tensor, out = call.args[0], call.result
    place = 2 if call.name in ("norm", "linalg_vector_norm") else 1
    dims = _reduced_dims(call.arg(place, "dim"), tensor.ndim)
    left = [d for d in range(tensor.ndim) if d not in dims]
    open_ones = []
    for source in observer.sources(tensor):
        summed = source.dims(dims)
        if source.stage == "data" or (source.stage == "row" and is_data):
            if summed and call.name != "max":
                observer.see(source, "embedding", call.name, summed)
        elif source.stage == "scaled":
            if summed and call.name == "sum":
                observer.see(source, "neuron", "mul and sum", summed)
        elif out.ndim == tensor.ndim:
            kept = tuple(() if d in dims else axes for d, axes in enumerate(source.axes))
            open_ones.append(source.seen(kept))
        else:
            open_ones.append(source.seen(tuple(source.axes[d] for d in left)))
    observer.mark(call.out, open_ones, is_data=is_data)


def _reduced_dims(dim: Any, ndim: int) -> list[int]:
    if dim is None or isinstance(dim, bool) or dim == []:
        return [*range(ndim)]
    return [d % ndim for d in ([dim] if isinstance(dim, int) else dim)] if ndim else []


# Views, copies, joins

_VIEW_COPIES = ("_unsafe_view", "view_copy", "reshape", "_reshape_alias")


def _view(observer: Observer, call: Call, is_data: bool) -> None:
    tensor = call.args[0]
    probe = torch.empty(tensor.shape, device="meta")
    views = tensors_in(call.func(probe, *call.args[1:], **call.kwargs))
    for out, view in zip(tensors_in(call.out), views, strict=True):
        sources = [
            s.seen(through_view(s.axes, tensor.shape, view)) for s in observer.sources(tensor)
        ]
        observer.mark(out, sources, is_data=is_data)


@_handles(
    "detach", "alias", "lift_fresh", "_conj", "conj_physical", "clone", "_to_copy", "contiguous"
)
@_handles("native_dropout", "bernoulli", "flip", "roll", "tril", "triu", "cumsum", "_log_softmax")
@_handles("repeat", "repeat_interleave", "constant_pad_nd", "avg_pool2d", "grid_sampler_2d")
@_handles("upsample_nearest1d", "upsample_nearest2d", "upsample_linear1d", "upsample_trilinear3d")
@_handles("upsample_bilinear2d", "upsample_bicubic2d")
@_handles("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def _same_dims(observer: Observer, call: Call, is_data: bool) -> None:
    out = call.result
    sources = [
        s.seen(resized(broadcast(s.axes, out.ndim), out.shape))
        for s in observer.sources(call.args[0])
    ]
    observer.mark(call.out, sources, is_data=is_data)


@_handles("cat", "stack")
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


@_handles("index_put", "masked_scatter", "slice_scatter", "select_scatter")
def _scatter(observer: Observer, call: Call, is_data: bool) -> None:
    out = call.result
    sources = []
    for tensor in tensors_in((call.args[0], call.args[2] if len(call.args) > 2 else ())):
        for source in observer.sources(tensor):
            if len(source.axes) <= out.ndim:
                wide = source.seen(broadcast(source.axes, out.ndim))
                sources.append(observer.join(wide, call.name) if is_data else wide)
    observer.mark(call.out, sources, is_data=is_data)


# Elementwise functions

_FACTOR = ("mul", "div", "true_divide")
_TERM = ("add", "sub", "rsub")
_LINEAR = (*_FACTOR, *_TERM, "neg", "positive", "copy")
_EITHER = ("addcmul", "addcdiv", "where", "lerp", "copy", "masked_fill")


def _pointwise(observer: Observer, call: Call, is_data: bool) -> None:
    out, tensors = call.result, call.tensors
    if not (out.dtype.is_floating_point or out.dtype.is_complex):
        return observer.mark(call.out, (), is_data=is_data)  # a comparison
    sources: list[Source] = []
    for place, tensor in enumerate(tensors):
        others = [other for i, other in enumerate(tensors) if i != place]
        meets_data = any(observer.origin(other).is_data for other in others)
        for source in observer.sources(tensor):
            source = source.seen(broadcast(source.axes, out.ndim))
            after = (
                _meet_data(observer, call, place, source)
                if meets_data
                else _meet_constants(observer, call, source, others)
            )
            sources += [] if after is None else [after]
    in_data = any(source.stage in ("data", "scaled") for source in sources)
    observer.mark(call.out, _fullest(sources), is_data=is_data or in_data)
    return None


for _name in ("where", "masked_fill", "addcmul", "addcdiv", "lerp", "copy", "glu"):
    _handles(_name)(_pointwise)


def _meet_constants(
    observer: Observer, call: Call, source: Source, others: Sequence[Tensor]
) -> Source | None:
    """Follow a parameter into a function of itself, of constants and of other parameters."""
    if source.stage == "data":
        return source
    if source.stage == "scaled":
        return None
    partners = [s for other in others for s in observer.sources(other) if s.name != source.name]
    wider = [s for s in partners if s.stage == "weight" and len(s.dims()) > len(source.dims())]
    if call.name in _FACTOR and source.stage == "weight" and wider:
        observer.see(source, "gain", f"{call.name}, scales a parameter")
        return None
    if call.name not in _LINEAR:
        return replace(source, is_nonlinear=True)
    return replace(source, has_offset=source.has_offset or (call.name in _TERM and not partners))


def _meet_data(observer: Observer, call: Call, place: int, source: Source) -> Source | None:
    """Follow a parameter into a function of data."""
    name = call.name
    if source.stage == "data":
        return source
    if source.stage == "scaled":
        return None
    is_factor = name in _FACTOR or (name in ("addcmul", "addcdiv") and place > 0)
    if is_factor or (name == "lerp" and place == 2):
        if source.stage == "row" and observer.origin(call.tensors[place]).is_data:
            return source  # an embedding that is scaled by data is still on its way
        role = _factor_role(source, is_divisor=name == "div" and place == 1)
        sighting = observer.see(source, role, name, is_settled=False)
        return replace(source, stage="scaled", sighting=sighting)
    if name in _TERM or name in _EITHER:
        # A row that was cut out of a table is no vector of biases.
        is_vector = source.stage == "weight" and observer.rank(source) <= 1
        if is_vector and name in (*_TERM, "addcmul", "addcdiv"):
            # Weak, since a token may be added too, once it was seen in a contraction.
            observer.see(source, "other" if source.is_nonlinear else "bias", name, is_weak=True)
            return None
        return observer.join(source, name)
    observer.see(source, "other", name)
    return None


def _factor_role(source: Source, *, is_divisor: bool = False) -> Role:
    # A norm that scales by 1 + weight has its neutral value at 0, where a gain has it at 1.
    return "other" if source.is_nonlinear or source.has_offset or is_divisor else "gain"


def _fullest(sources: Sequence[Source]) -> list[Source]:
    """Keep one source where a parameter meets itself, as in ``v / norm(v)``: the one with most dims."""
    best: dict[tuple[str, str, int], Source] = {}
    for source in sources:
        key = source.name, source.stage, id(source.sighting)
        if key not in best or len(source.dims()) > len(best[key].dims()):
            best[key] = source
    return list(best.values())


def _elementwise(observer: Observer, tensor: Tensor | None, role: Role, operation: str) -> None:
    """Note that an operation takes a tensor as gain or bias."""
    for source in observer.sources(tensor):
        if source.stage in ("weight", "row"):
            observer.see(source, _factor_role(source) if role == "gain" else role, operation)


@_handles("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like")
@_handles("new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided")
def _like(observer: Observer, call: Call, is_data: bool) -> None:
    """Asks for a shape only."""


def _unknown(observer: Observer, call: Call, is_data: bool) -> None:
    for tensor in call.tensors:
        for source in observer.sources(tensor):
            if source.stage == "weight":  # of a row that was gathered we know that already
                operation = f"{call.name}, which is not followed"
                observer.see(source, "other", operation, is_weak=True)
    observer.mark(call.out, (), is_data=True)
