"""Operations that sum over dims: what they sum over is fan-in."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from torch import Tensor

from nero.core.neurons import Role
from nero.layout.observation.handlers import handles
from nero.layout.observation.observer import Call, Observer, tensors_in
from nero.layout.observation.sightings import Source


@handles("mm", "bmm", "mv", "dot", "vdot", "matmul", "_grouped_mm", "_scaled_mm")
def _product(observer: Observer, call: Call, is_data: bool) -> None:
    _multiply(observer, call, call.args[0], call.args[1])


@handles("addmm", "baddbmm", "addbmm", "addmv", "_addmm_activation")
def _sum_of_product(observer: Observer, call: Call, is_data: bool) -> None:
    observer.see_elementwise(call.args[0], "bias", call.name)
    _multiply(observer, call, call.args[1], call.args[2])


@handles("linear")
def _linear(observer: Observer, call: Call, is_data: bool) -> None:
    data, weight = call.args[:2]
    is_token = _is_layer(observer, weight)
    contract(observer, data, [data.ndim - 1], call.name, is_token=is_token)
    contract(observer, weight, [1], call.name, partner=data)
    observer.see_data_through(weight)
    observer.see_elementwise(call.arg(2, "bias"), "bias", call.name)
    observer.mark(call.out, (), is_data=True)


@handles("convolution", "_convolution", "convolution_overrideable")
def _convolution(observer: Observer, call: Call, is_data: bool) -> None:
    data, weight, bias = call.args[:3]
    is_transposed, groups = call.args[6], call.args[8]
    is_token = _is_layer(observer, weight)
    contract(observer, data, [1, *range(2, data.ndim)], call.name, is_token=is_token)
    observer.see_data_through(weight)
    for source in [s for s in observer.sources(weight) if s.stage != "token"]:
        fan_in = source.dims([0 if is_transposed else 1, *range(2, weight.ndim)])
        sighting = observer.see(
            source,
            "neuron" if fan_in else "gain",
            call.name,
            fan_in,
            num_groups=groups if is_transposed else 1,
        )
        observer.see_layer(source, sighting, data)
    observer.see_elementwise(bias, "bias", call.name)
    observer.mark(call.out, (), is_data=True)


@handles("_trilinear")
def _trilinear(observer: Observer, call: Call, is_data: bool) -> None:
    for tensor, expanded in zip(call.args[:3], call.args[3:6], strict=True):
        own = [d for d in range(tensor.ndim + len(expanded)) if d not in expanded]
        summed = [place for place, d in enumerate(own) if d in call.args[6]]
        partner = call.args[0] if tensor is call.args[1] else None
        contract(observer, tensor, summed, "bilinear", partner=partner)
    observer.mark(call.out, (), is_data=True)


def _attention(observer: Observer, call: Call, is_data: bool) -> None:
    query, key, value = call.args[:3]
    for tensor, dim in ((query, -1), (key, -1), (value, -2)):
        contract(observer, tensor, [dim % tensor.ndim], "attention", batch=[0, 1], is_token=True)
    for mask in tensors_in((call.args[3:], call.kwargs)):
        for source in observer.sources(mask):
            observer.see(source, "bias", "logits of attention")
    observer.mark(call.out, (), is_data=True)


handles(
    "scaled_dot_product_attention",
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)(_attention)


def _is_layer(observer: Observer, tensor: Tensor) -> bool:
    """Whether a tensor is the weight of a layer, which nothing but parameters have made."""
    origin = observer.origin(tensor)
    return not origin.is_data and any(s.stage == "weight" and s.dims() for s in origin.sources)


def _batch(call: Call, partner: Tensor) -> list[int]:
    """Return the dims that tell heads apart: none, if one matrix is expanded to multiply a whole batch."""
    return [0] if "bmm" in call.name and partner.stride(0) > 0 else []


def _multiply(observer: Observer, call: Call, left: Tensor, right: Tensor) -> None:
    if _own_product(observer, call, left, right):
        return observer.mark(call.out, (), is_data=True)
    is_token, summed = _is_layer(observer, right), max(right.ndim - 2, 0)
    rows = contract(
        observer, left, [left.ndim - 1], call.name,
        batch=_batch(call, right), partner=right, is_token=is_token,
    )  # fmt: skip
    columns = contract(observer, right, [summed], call.name, batch=_batch(call, left), partner=left)
    if right.ndim == 2 or not right.stride(0):
        observer.see_data_through(right)
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


def _own_product(observer: Observer, call: Call, left: Tensor, right: Tensor) -> bool:
    """Note a parameter that is multiplied by nothing but itself, as in a Gram matrix: no neurons there."""
    names = [{s.name for s in observer.sources(tensor)} for tensor in (left, right)]
    if names[0] != names[1] or not (_is_layer(observer, left) and _is_layer(observer, right)):
        return False
    for source in observer.sources(left):
        observer.see(source, "other", f"{call.name} with itself", is_weak=True)
    return True


def contract(
    observer: Observer,
    tensor: Tensor,
    dims: Sequence[int],
    operation: str,
    *,
    batch: Sequence[int] = (),
    partner: Tensor | None = None,
    is_token: bool = False,
) -> list[Source]:
    """Note that an operation sums over ``dims`` of a tensor; return what the sum leaves in the data.

    Args:
        observer: what has been seen so far.
        tensor: the tensor.
        dims: its dims that are summed over.
        operation: what messages call the operation.
        batch: its dims that tell heads apart.
        partner: what it is multiplied by.
        is_token: whether it stands in the place of data, so that a parameter in it is one of tokens.
    """
    left_over = []
    is_weak = partner is not None and observer.is_constant(partner)
    for source in observer.sources(tensor):
        others = [d for d in range(len(source.axes)) if d not in dims]
        summed, kept = source.dims(dims), source.dims(others)
        if source.stage == "token" and not summed:
            left_over.append(source)
        if source.stage in ("token", "scaled") or not source.dims():
            continue  # the sum is a later layer's, or a statistic's
        if is_token and source.stage == "weight" and summed:
            sighting = observer.see(source, "embedding", operation, summed, is_settled=False)
            left_over.append(replace(source, stage="token", sighting=sighting))
        elif source.stage == "data":
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
                sighting = observer.see(source, role, operation, summed)
                observer.see_score(sighting, observer.factor(partner), partner)
        elif summed:
            groups = _size_of_dim_0(source, others) if 0 in summed else 1
            sighting = observer.see(
                source, "neuron", operation, summed, num_groups=groups, is_weak=is_weak
            )
            observer.see_layer(source, sighting, partner)
        else:
            observer.see(source, source.factor_role, operation)
    return left_over


def _size_of_dim_0(source: Source, dims: Iterable[int]) -> int:
    """Return how much of the parameter's dim 0 these dims walk: as many groups share its inputs."""
    return math.prod(axis.size for d in dims for axis in source.axes[d] if axis.dims == {0})
