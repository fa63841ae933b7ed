"""Elementwise functions, reductions and norms: factors are gains, terms are biases."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from nero.layout.observation.axes import broadcast, dims_of
from nero.layout.observation.contractions import contract
from nero.layout.observation.notes import Call, Handler, Notes
from nero.layout.observation.sightings import Source

_FACTOR = ("mul", "div", "true_divide")
_TERM = ("add", "sub", "rsub")
_LINEAR = (*_FACTOR, *_TERM, "neg", "positive", "copy")
_EITHER = ("addcmul", "addcdiv", "where", "lerp", "copy", "masked_fill")


def follow_pointwise(notes: Notes, call: Call) -> None:
    """Follow an elementwise function."""
    out, tensors = call.result, call.tensors
    if not (out.dtype.is_floating_point or out.dtype.is_complex):
        return notes.mark(call.out, (), is_data=call.is_data)  # a comparison
    sources: list[Source] = []
    mixed = _meets_its_transpose(notes, call)
    for position, tensor in enumerate(tensors):
        others = [other for i, other in enumerate(tensors) if i != position]
        meets_data = any(notes.origin(other).is_data for other in others)
        for source in notes.sources(tensor):
            if source.name in mixed:
                continue
            source = source.with_axes(broadcast(source.axes, out.ndim))
            if meets_data:
                after = _meet_data(notes, call, position, source)
            else:
                after = _meet_constants(notes, call, source, others)
            sources += [] if after is None else [after]
    in_data = any(source.stage in ("data", "scaled") for source in sources)
    notes.mark(call.out, _fullest(sources), is_data=call.is_data or in_data)
    return None


def _meet_constants(
    notes: Notes, call: Call, source: Source, others: Sequence[Tensor]
) -> Source | None:
    """Follow a parameter into a function of itself, constants and other parameters."""
    if source.stage == "data":
        return source
    if source.stage == "scaled":
        return None
    if source.stage == "token":
        return source if call.name in _LINEAR else None
    partners = [s for other in others for s in notes.sources(other) if s.name != source.name]
    wider = [s for s in partners if s.stage == "weight" and len(s.dims()) > len(source.dims())]
    if call.name in _FACTOR and source.stage == "weight" and wider:
        notes.see(source, "gain", f"{call.name}, scales a parameter")
        return None
    if call.name not in _LINEAR:
        return replace(source, is_nonlinear=True)
    return replace(source, has_offset=source.has_offset or (call.name in _TERM and not partners))


def _meet_data(notes: Notes, call: Call, position: int, source: Source) -> Source | None:
    """Follow a parameter into a function of data."""
    name = call.name
    if source.stage == "data":
        return source
    if source.is_switched and name in _TERM:
        return replace(source, stage="data")  # the first contraction will show its vectors
    if source.stage in ("token", "scaled"):
        return None
    is_factor = name in _FACTOR or (name in ("addcmul", "addcdiv") and position > 0)
    if is_factor or (name == "lerp" and position == 2):
        if source.stage == "row" and notes.origin(call.tensors[position]).is_data:
            return _multiplied(notes, call, position, source)  # not settled yet
        role = "other" if name == "div" and position == 1 else source.factor_role
        sighting = notes.see(source, role, name, is_settled=False)
        is_switched = name == "mul" and _is_switch(call, position, source)
        return replace(source, stage="scaled", is_switched=is_switched, sighting=sighting)
    if name in _TERM or name in _EITHER:
        # A row taken from a table is not a vector of biases.
        is_vector = source.stage == "weight" and notes.rank(source) <= 1
        if is_vector and name in (*_TERM, "addcmul", "addcdiv"):
            # Weak, since tokens are added too; a contraction then shows that it is one.
            notes.see(source, "other" if source.is_nonlinear else "bias", name, is_weak=True)
            return None
        return notes.join(source, name)
    notes.see(source, "other", name)
    return None


def _is_switch(call: Call, position: int, source: Source) -> bool:
    """Whether the other factor is one number per whole copy of the parameter."""
    others = [tensor for i, tensor in enumerate(call.tensors) if i != position]
    own_dims = [d - len(source.axes) for d, factors in enumerate(source.axes) if factors]
    return all(other.ndim < -d or other.shape[d] == 1 for other in others for d in own_dims)


def _meets_its_transpose(notes: Notes, call: Call) -> set[str]:
    """Return parameters that meet themselves along other dims, which mixes their rows."""
    first: dict[str, Source] = {}
    mixed = set()
    for source in [s for tensor in call.tensors for s in notes.sources(tensor)]:
        other = first.setdefault(source.name, source)
        pairs = zip(reversed(source.axes), reversed(other.axes), strict=False)
        if source.stage == other.stage == "weight" and any(
            dims_of([a]).isdisjoint(dims_of([b])) for a, b in pairs if a and b
        ):
            notes.see(source, "other", f"{call.name} with its own transpose", is_weak=True)
            mixed.add(source.name)
    return mixed


def _multiplied(notes: Notes, call: Call, position: int, source: Source) -> Source:
    """Return gathered rows with the other factor, unless it is a single number per row."""
    for i, other in enumerate(call.tensors):
        sizes = (1,) * (len(source.axes) - other.ndim) + tuple(other.shape)
        is_varied = any(n > 1 and axes for n, axes in zip(sizes, source.axes, strict=True))
        if i != position and is_varied:
            source = replace(source, factor=notes.factor(other) or source.factor)
    return source


def _fullest(sources: Sequence[Source]) -> list[Source]:
    """Keep the source with the most dims where a parameter meets itself, as in ``v / norm(v)``."""
    best: dict[tuple[str, str, int], Source] = {}
    for source in sources:
        key = source.name, source.stage, id(source.sighting)
        if key not in best or len(source.dims()) > len(best[key].dims()):
            best[key] = source
    return list(best.values())


def _layer_norm(notes: Notes, call: Call) -> None:
    data, normalized_shape = call.args[:2]
    notes.see_elementwise(call.arg(2, "weight"), "gain", call.name)
    if call.name == "native_layer_norm":
        notes.see_elementwise(call.arg(3, "bias"), "bias", call.name)
    dims = [*range(data.ndim - len(normalized_shape), data.ndim)]
    tokens = contract(notes, data, dims, call.name, is_token=True)
    notes.mark(call.out, [s for s in tokens if s.stage == "token"], is_data=True)


def _batch_norm(notes: Notes, call: Call) -> None:
    notes.see_elementwise(call.arg(1, "weight"), "gain", call.name)
    notes.see_elementwise(call.arg(2, "bias"), "bias", call.name)
    joined = [s for s in notes.sources(call.args[0]) if s.stage == "data"]
    notes.mark(call.out, joined, is_data=True)


def _weight_norm(notes: Notes, call: Call) -> None:
    notes.see_elementwise(call.args[1], "gain", "weight norm")
    notes.mark(call.out[0], notes.sources(call.args[0]), is_data=call.is_data)


def _softmax(notes: Notes, call: Call) -> None:
    unsettled = []
    for source in notes.sources(call.args[0]):
        if source.stage == "data" or (source.stage == "row" and call.is_data):
            notes.see(source, "bias", "logits of softmax")
        elif source.stage in ("weight", "row"):
            unsettled.append(replace(source, is_nonlinear=True))
    notes.mark(call.out, unsettled, is_data=call.is_data)


def _reduction(notes: Notes, call: Call) -> None:
    tensor, out = call.args[0], call.result
    position = 2 if call.name in ("norm", "linalg_vector_norm") else 1
    dims = _reduced_dims(call.arg(position, "dim"), tensor.ndim)
    kept_dims = [d for d in range(tensor.ndim) if d not in dims]
    has_keepdim = out.ndim == tensor.ndim
    unsettled = []
    for source in notes.sources(tensor):
        summed = source.dims(dims)
        kept = tuple(() if d in dims else axes for d, axes in enumerate(source.axes))
        after = source.with_axes(kept if has_keepdim else tuple(source.axes[d] for d in kept_dims))
        if source.stage == "data" or (source.stage == "row" and call.is_data):
            if summed and call.name != "max":
                sighting = notes.see(source, "embedding", call.name, summed)
                factor = source.factor if call.name == "sum" else None
                notes.see_score(sighting, factor, tensor)
            elif source.stage == "row" and not summed:  # such as a mean of context words
                unsettled.append(after)
        elif source.stage == "scaled":
            if summed and call.name == "sum":
                sighting = notes.see(source, "neuron", "mul and sum", summed)
                notes.see_layer(source, sighting, tensor)
        else:
            unsettled.append(after)
    notes.mark(call.out, unsettled, is_data=call.is_data)


def _reduced_dims(dim: Any, ndim: int) -> list[int]:
    if dim is None or isinstance(dim, bool) or dim == []:
        return [*range(ndim)]
    return [d % ndim for d in ([dim] if isinstance(dim, int) else dim)] if ndim else []


_BATCH_NORMS = (
    *("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"),
    *("_batch_norm_with_update", "_batch_norm_no_update", "cudnn_batch_norm", "native_group_norm"),
)
_REDUCTIONS = (
    *("sum", "mean", "prod", "var", "std", "var_mean", "logsumexp", "norm", "linalg_vector_norm"),
    *("max", "min", "amax", "amin", "any", "all"),
)
FUNCTIONS: dict[str, Handler] = {
    **dict.fromkeys((*_EITHER, "glu"), follow_pointwise),
    **dict.fromkeys(("native_layer_norm", "_fused_rms_norm"), _layer_norm),
    **dict.fromkeys(_BATCH_NORMS, _batch_norm),
    "_weight_norm_interface": _weight_norm,
    **dict.fromkeys(("_softmax", "softmax", "_safe_softmax"), _softmax),
    **dict.fromkeys(_REDUCTIONS, _reduction),
}
