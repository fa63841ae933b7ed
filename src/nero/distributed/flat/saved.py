"""The state of a range in checkpoints of FSDP1: one number per element.

``FSDP.optim_state_dict`` gathers tensors shaped like the range and reshapes them like the parameter. So
per-neuron state is repeated for each of the neuron's weights, and read back from any one of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from nero.core.precision import working_dtype
from nero.distributed.flat.boxes import Piece
from nero.distributed.flat.holder import FlatRange
from nero.distributed.flat.parts import Place

_PER_NEURON = ("exp_avg_norm", "radius")


def spread(held: FlatRange, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a range's state with scalars, and with tensors in the shape of the range."""
    flat = held.param.detach()
    saved: dict[str, Tensor] = {}
    for key, tensor in state.items():
        if key in ("step", "scale"):
            saved[key] = tensor[0].clone() if len(tensor) else tensor.new_zeros(())
        elif key == "exp_avg":  # all in one dtype, as FSDP1 wants it
            saved[key] = tensor.to(working_dtype(flat.dtype))
        elif key in _PER_NEURON:
            saved[key] = torch.zeros_like(flat, dtype=tensor.dtype)
            for first, shape, _, values in _boxes(held, tensor):
                part = saved[key][first : first + shape.numel()]
                part.copy_(values.expand(shape).reshape(-1))
    if held.spreads_radius:
        saved.setdefault("radius", torch.zeros_like(flat, dtype=working_dtype(flat.dtype)))
    return saved


def collapsed(
    held: FlatRange, saved: Mapping[str, Any], fresh: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Convert saved state back to this range's format: the inverse of `spread`."""
    state: dict[str, Any] = {}
    for key, value in saved.items():
        if key not in fresh:
            continue
        if key in ("step", "scale"):
            state[key] = torch.full_like(fresh[key], float(value) if key == "scale" else int(value))
        elif key in _PER_NEURON and tuple(value.shape) == tuple(held.param.shape):
            state[key] = fresh[key].clone()
            for first, shape, dims, views in _boxes(held, state[key]):
                part = value[first : first + shape.numel()].view(shape)
                for dim in dims:
                    part = part.narrow(dim, 0, 1)
                views.copy_(part)
        else:
            state[key] = value
    return state


def _boxes(
    held: FlatRange, tensor: Tensor
) -> Iterator[tuple[int, torch.Size, tuple[int, ...], Tensor]]:
    """Yield each box's first element, shape, fan-in dims, and its view of state per neuron."""
    pairs: Iterator[tuple[Piece, Place]] = zip(held.pieces, held.state_places, strict=True)
    for _, place in pairs:
        form = place.form
        for box in place.boxes:
            shape, dims = box.view(form)
            kept_shape = tuple(1 if d in dims else n for d, n in enumerate(shape))
            slot = place.slot_of(box.block(form))
            if box.is_whole(form):
                views = tensor[slot : slot + torch.Size(kept_shape).numel()].view(kept_shape)
            else:
                views = tensor[slot : slot + form.num_kept].view(form.kept)[box.kept(form)]
                views = views.view(kept_shape)
            yield box.first, torch.Size(shape), dims, views
