"""Operations that sum over dims: the summed dims of a parameter are its fan-in."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from torch import Tensor

from nero.core.neurons import Role
from nero.layout.observation.notes import Call, Handler, Notes, tensors_in
from nero.layout.observation.sightings import Source


def _product(notes: Notes, call: Call) -> None:
    _multiply(notes, call, call.args[0], call.args[1])


def _sum_of_product(notes: Notes, call: Call) -> None:
    notes.see_elementwise(call.args[0], "bias", call.name)
    _multiply(notes, call, call.args[1], call.args[2])


def _linear(notes: Notes, call: Call) -> None:
    data, weight = call.args[:2]
    is_token = _is_layer(notes, weight)
    contract(notes, data, [data.ndim - 1], call.name, is_token=is_token)
    contract(notes, weight, [1], call.name, partner=data)
    notes.see_data_through(weight)
    notes.see_elementwise(call.arg(2, "bias"), "bias", call.name)
    notes.mark(call.out, (), is_data=True)


def _convolution(notes: Notes, call: Call) -> None:
    data, weight, bias = call.args[:3]
    is_transposed, groups = call.args[6], call.args[8]
    is_token = _is_layer(notes, weight)
    contract(notes, data, [1, *range(2, data.ndim)], call.name, is_token=is_token)
    notes.see_data_through(weight)
    for source in [s for s in notes.sources(weight) if s.stage != "token"]:
        fan_in = source.dims([0 if is_transposed else 1, *range(2, weight.ndim)])
        sighting = notes.see(
            source,
            "neuron" if fan_in else "gain",
            call.name,
            fan_in,
            num_groups=groups if is_transposed else 1,
        )
        notes.see_layer(source, sighting, data)
    notes.see_elementwise(bias, "bias", call.name)
    notes.mark(call.out, (), is_data=True)


def _trilinear(notes: Notes, call: Call) -> None:
    for tensor, expanded in zip(call.args[:3], call.args[3:6], strict=True):
        own = [d for d in range(tensor.ndim + len(expanded)) if d not in expanded]
        summed = [position for position, d in enumerate(own) if d in call.args[6]]
        partner = call.args[0] if tensor is call.args[1] else None
        contract(notes, tensor, summed, "bilinear", partner=partner)
    notes.mark(call.out, (), is_data=True)


def _attention(notes: Notes, call: Call) -> None:
    query, key, value = call.args[:3]
    for tensor, dim in ((query, -1), (key, -1), (value, -2)):
        contract(notes, tensor, [dim % tensor.ndim], "attention", batch=[0, 1], is_token=True)
    for mask in tensors_in((call.args[3:], call.kwargs)):
        for source in notes.sources(mask):
            notes.see(source, "bias", "logits of attention")
    notes.mark(call.out, (), is_data=True)


def _is_layer(notes: Notes, tensor: Tensor) -> bool:
    """Whether a tensor is a layer's weight: made from parameters, without data."""
    origin = notes.origin(tensor)
    return not origin.is_data and any(s.stage == "weight" and s.dims() for s in origin.sources)


def _batch(call: Call, partner: Tensor) -> list[int]:
    """Return the dims that index heads: none if one matrix is expanded to multiply a whole batch."""
    return [0] if "bmm" in call.name and partner.stride(0) > 0 else []


def _multiply(notes: Notes, call: Call, left: Tensor, right: Tensor) -> None:
    if _own_product(notes, call, left, right):
        return notes.mark(call.out, (), is_data=True)
    is_token, summed = _is_layer(notes, right), max(right.ndim - 2, 0)
    rows = contract(
        notes, left, [left.ndim - 1], call.name,
        batch=_batch(call, right), partner=right, is_token=is_token,
    )  # fmt: skip
    columns = contract(notes, right, [summed], call.name, batch=_batch(call, left), partner=left)
    if right.ndim == 2 or not right.stride(0):
        notes.see_data_through(right)
    is_vector = call.name in ("mv", "dot", "vdot")
    if is_vector and (notes.is_constant(left) or notes.is_constant(right)):
        # The power iteration of spectral norm: its result is a statistic of the weight.
        none = ((),) * call.result.ndim
        statistics = [s.with_axes(none) for t in (left, right) for s in notes.sources(t)]
        return notes.mark(call.out, statistics, is_data=False)
    if is_vector or not left.ndim == right.ndim == call.result.ndim:
        return notes.mark(call.out, (), is_data=True)
    rows = [s.with_axes((*s.axes[:-1], ())) for s in rows]
    columns = [s.with_axes((*s.axes[:-2], (), s.axes[-1])) for s in columns]
    return notes.mark(call.out, [*rows, *columns], is_data=True)


def _own_product(notes: Notes, call: Call, left: Tensor, right: Tensor) -> bool:
    """Note a parameter multiplied only by itself, as in a Gram matrix, which shows no neurons."""
    names = [{s.name for s in notes.sources(tensor)} for tensor in (left, right)]
    if names[0] != names[1] or not (_is_layer(notes, left) and _is_layer(notes, right)):
        return False
    for source in notes.sources(left):
        notes.see(source, "other", f"{call.name} with itself", is_weak=True)
    return True


def contract(
    notes: Notes,
    tensor: Tensor,
    dims: Sequence[int],
    operation: str,
    *,
    batch: Sequence[int] = (),
    partner: Tensor | None = None,
    is_token: bool = False,
) -> list[Source]:
    """Note that an operation sums over ``dims`` of a tensor; return the sources to follow further.

    Args:
        notes: everything seen so far.
        tensor: the tensor.
        dims: the summed dims.
        operation: the operation's name in messages.
        batch: the dims that index heads.
        partner: the other factor.
        is_token: whether the tensor is used as data, so that a parameter in it consists of tokens.
    """
    unsettled = []
    is_weak = partner is not None and notes.is_constant(partner)
    for source in notes.sources(tensor):
        others = [d for d in range(len(source.axes)) if d not in dims]
        summed, kept = source.dims(dims), source.dims(others)
        if source.stage == "token" and not summed:
            unsettled.append(source)
        if source.stage in ("token", "scaled") or not source.dims():
            continue  # the sum belongs to a later layer or to a statistic
        if is_token and source.stage == "weight" and summed:
            sighting = notes.see(source, "embedding", operation, summed, is_settled=False)
            unsettled.append(replace(source, stage="token", sighting=sighting))
        elif source.stage == "data":
            if summed and kept and kept == source.dims(batch) and not kept & summed:
                notes.see(source, "bias", f"{operation}, one vector per head")
            elif summed:
                sighting = notes.see(source, "embedding", operation, summed)
                sighting.meets_rows |= notes.has_rows(partner)
            elif source.dims([d for d in others if d not in batch]):
                unsettled.append(source)
            else:
                notes.see(source, "bias", f"{operation}, one number per head")
        elif source.stage == "row":
            if summed:
                role: Role = "embedding" if kept <= summed else "neuron"
                sighting = notes.see(source, role, operation, summed)
                notes.see_score(sighting, notes.factor(partner), partner)
        elif summed:
            groups = _size_of_dim_0(source, others) if 0 in summed else 1
            sighting = notes.see(
                source, "neuron", operation, summed, num_groups=groups, is_weak=is_weak
            )
            notes.see_layer(source, sighting, partner)
        else:
            notes.see(source, source.factor_role, operation)
    return unsettled


def _size_of_dim_0(source: Source, dims: Iterable[int]) -> int:
    """Return how much of the parameter's dim 0 these dims cover: the number of groups."""
    return math.prod(axis.size for d in dims for axis in source.axes[d] if axis.dims == {0})


_PRODUCTS = ("mm", "bmm", "mv", "dot", "vdot", "matmul", "_grouped_mm", "_scaled_mm")
_ATTENTIONS = (
    *("scaled_dot_product_attention", "_scaled_dot_product_attention_math"),
    *("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu"),
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)
CONTRACTIONS: dict[str, Handler] = {
    **dict.fromkeys(_PRODUCTS, _product),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm", "addmv", "_addmm_activation"), _sum_of_product),
    "linear": _linear,
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), _convolution),
    "_trilinear": _trilinear,
    **dict.fromkeys(_ATTENTIONS, _attention),
}
