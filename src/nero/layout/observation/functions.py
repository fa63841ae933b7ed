"""Functions of single numbers, and of the numbers along a dim: factors are gains, terms are biases."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from nero.layout.observation.axes import broadcast, dims_of
from nero.layout.observation.contractions import contract
from nero.layout.observation.handlers import handles
from nero.layout.observation.observer import Call, Observer
from nero.layout.observation.sightings import Source

_FACTOR = ("mul", "div", "true_divide")
_TERM = ("add", "sub", "rsub")
_LINEAR = (*_FACTOR, *_TERM, "neg", "positive", "copy")
_EITHER = ("addcmul", "addcdiv", "where", "lerp", "copy", "masked_fill")


@handles("where", "masked_fill", "addcmul", "addcdiv", "lerp", "copy", "glu")
def follow_pointwise(observer: Observer, call: Call, is_data: bool) -> None:
    """Follow a function that treats every number alike."""
    out, tensors = call.result, call.tensors
    if not (out.dtype.is_floating_point or out.dtype.is_complex):
        return observer.mark(call.out, (), is_data=is_data)  # a comparison
    sources: list[Source] = []
    mixed = _meets_its_transpose(observer, call)
    for place, tensor in enumerate(tensors):
        others = [other for i, other in enumerate(tensors) if i != place]
        meets_data = any(observer.origin(other).is_data for other in others)
        for source in observer.sources(tensor):
            if source.name in mixed:
                continue
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


def _meet_constants(
    observer: Observer, call: Call, source: Source, others: Sequence[Tensor]
) -> Source | None:
    """Follow a parameter into a function of itself, of constants and of other parameters."""
    if source.stage == "data":
        return source
    if source.stage == "scaled":
        return None
    if source.stage == "token":
        return source if call.name in _LINEAR else None
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
    if source.is_switched and name in _TERM:
        return replace(source, stage="data")  # the first contraction will show its vectors
    if source.stage in ("token", "scaled"):
        return None
    is_factor = name in _FACTOR or (name in ("addcmul", "addcdiv") and place > 0)
    if is_factor or (name == "lerp" and place == 2):
        if source.stage == "row" and observer.origin(call.tensors[place]).is_data:
            return _multiplied(observer, call, place, source)  # it is still on its way
        role = "other" if name == "div" and place == 1 else source.factor_role
        sighting = observer.see(source, role, name, is_settled=False)
        is_switched = name == "mul" and _is_switch(call, place, source)
        return replace(source, stage="scaled", is_switched=is_switched, sighting=sighting)
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


def _is_switch(call: Call, place: int, source: Source) -> bool:
    """Whether the other factor is one number for each whole copy of the parameter."""
    others = [tensor for i, tensor in enumerate(call.tensors) if i != place]
    walked = [d - len(source.axes) for d, stretches in enumerate(source.axes) if stretches]
    return all(other.ndim < -d or other.shape[d] == 1 for other in others for d in walked)


def _meets_its_transpose(observer: Observer, call: Call) -> set[str]:
    """Note parameters that meet themselves along other dims: no row of the outcome is one of theirs."""
    first: dict[str, Source] = {}
    found = set()
    for source in [s for tensor in call.tensors for s in observer.sources(tensor)]:
        other = first.setdefault(source.name, source)
        pairs = zip(reversed(source.axes), reversed(other.axes), strict=False)
        if source.stage == other.stage == "weight" and any(
            dims_of([a]).isdisjoint(dims_of([b])) for a, b in pairs if a and b
        ):
            observer.see(source, "other", f"{call.name} with its own transpose", is_weak=True)
            found.add(source.name)
    return found


def _multiplied(observer: Observer, call: Call, place: int, source: Source) -> Source:
    """Return gathered rows, and by what they were multiplied, unless that was one number for each row."""
    for i, other in enumerate(call.tensors):
        sizes = (1,) * (len(source.axes) - other.ndim) + tuple(other.shape)
        if i != place and any(n > 1 and axes for n, axes in zip(sizes, source.axes, strict=True)):
            source = replace(source, factor=observer.factor(other) or source.factor)
    return source


def _fullest(sources: Sequence[Source]) -> list[Source]:
    """Keep one source where a parameter meets itself, as in ``v / norm(v)``: the one with most dims."""
    best: dict[tuple[str, str, int], Source] = {}
    for source in sources:
        key = source.name, source.stage, id(source.sighting)
        if key not in best or len(source.dims()) > len(best[key].dims()):
            best[key] = source
    return list(best.values())


@handles("native_layer_norm", "_fused_rms_norm")
def _layer_norm(observer: Observer, call: Call, is_data: bool) -> None:
    data, normalised = call.args[:2]
    observer.see_elementwise(call.arg(2, "weight"), "gain", call.name)
    if call.name == "native_layer_norm":
        observer.see_elementwise(call.arg(3, "bias"), "bias", call.name)
    dims = [*range(data.ndim - len(normalised), data.ndim)]
    tokens = contract(observer, data, dims, call.name, is_token=True)
    observer.mark(call.out, [s for s in tokens if s.stage == "token"], is_data=True)


@handles(
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "_batch_norm_with_update",
    "_batch_norm_no_update",
    "cudnn_batch_norm",
    "native_group_norm",
)
def _batch_norm(observer: Observer, call: Call, is_data: bool) -> None:
    observer.see_elementwise(call.arg(1, "weight"), "gain", call.name)
    observer.see_elementwise(call.arg(2, "bias"), "bias", call.name)
    joined = [s for s in observer.sources(call.args[0]) if s.stage == "data"]
    observer.mark(call.out, joined, is_data=True)


@handles("_weight_norm_interface")
def _weight_norm(observer: Observer, call: Call, is_data: bool) -> None:
    observer.see_elementwise(call.args[1], "gain", "weight norm")
    observer.mark(call.out[0], observer.sources(call.args[0]), is_data=is_data)


@handles("_softmax", "softmax", "_safe_softmax")
def _softmax(observer: Observer, call: Call, is_data: bool) -> None:
    open_ones = []
    for source in observer.sources(call.args[0]):
        if source.stage == "data" or (source.stage == "row" and is_data):
            observer.see(source, "bias", "logits of softmax")
        elif source.stage in ("weight", "row"):
            open_ones.append(replace(source, is_nonlinear=True))
    observer.mark(call.out, open_ones, is_data=is_data)


@handles(
    *("sum", "mean", "prod", "var", "std", "var_mean", "logsumexp", "norm", "linalg_vector_norm"),
    *("max", "min", "amax", "amin", "any", "all"),
)
def _reduction(observer: Observer, call: Call, is_data: bool) -> None:
    tensor, out = call.args[0], call.result
    place = 2 if call.name in ("norm", "linalg_vector_norm") else 1
    dims = _reduced_dims(call.arg(place, "dim"), tensor.ndim)
    left = [d for d in range(tensor.ndim) if d not in dims]
    has_all = out.ndim == tensor.ndim
    open_ones = []
    for source in observer.sources(tensor):
        summed = source.dims(dims)
        kept = tuple(() if d in dims else axes for d, axes in enumerate(source.axes))
        after = source.seen(kept if has_all else tuple(source.axes[d] for d in left))
        if source.stage == "data" or (source.stage == "row" and is_data):
            if summed and call.name != "max":
                sighting = observer.see(source, "embedding", call.name, summed)
                factor = source.factor if call.name == "sum" else None
                observer.see_score(sighting, factor, tensor)
            elif source.stage == "row" and not summed:  # as the mean of words around a word
                open_ones.append(after)
        elif source.stage == "scaled":
            if summed and call.name == "sum":
                sighting = observer.see(source, "neuron", "mul and sum", summed)
                observer.see_layer(source, sighting, tensor)
        else:
            open_ones.append(after)
    observer.mark(call.out, open_ones, is_data=is_data)


def _reduced_dims(dim: Any, ndim: int) -> list[int]:
    if dim is None or isinstance(dim, bool) or dim == []:
        return [*range(ndim)]
    return [d % ndim for d in ([dim] if isinstance(dim, int) else dim)] if ndim else []
