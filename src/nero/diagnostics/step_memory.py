"""What a check keeps from one checked step to the next."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nero.core.neurons import Neurons
from nero.core.spec import Hyper
from nero.diagnostics.definition import Memory

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass
class Watched:
    """One parameter, and its values at the last checked step."""

    name: str
    neurons: Neurons
    index: int
    """Its position in the model; it selects the rank that checks a matrix whose rows cannot be split."""
    memory: Memory | None = None
    fingerprint: int = 0
    """Of the value after the last checked step."""


def recalled(rows: Tensor, value: Tensor, hyper: Hyper, *, elementwise: bool) -> Memory:
    """Return the memory of a parameter before its first step.

    Args:
        rows: of this rank, in float64.
        value: the full parameter.
        hyper: the options that apply to its neurons.
        elementwise: whether it has no neurons.
    """
    radius: Any = None if elementwise else hyper.constraint.radius
    if radius == "initial":
        norms = rows.norm(dim=1, keepdim=True)
        radius = torch.where(norms > 0, norms, hyper.bias_scale)
    length = None
    if elementwise:
        finite = value.double()[value.isfinite()]
        length = (float(finite.abs().mean()) if finite.numel() else 0.0) or hyper.bias_scale
    return Memory(0, rows.new_zeros(len(rows), 1), None, length, radius)


def fingerprint(value: Tensor) -> int:
    """Return a hash of a tensor's bits that is the same on every rank.

    Example:
        >>> from nero.diagnostics.step_memory import fingerprint
        >>> fingerprint(torch.tensor([1.0, 2.0])) == fingerprint(torch.tensor([2.0, 1.0]))
        False
    """
    bits = value.detach().contiguous().view(-1).view(_INTEGERS[value.dtype.itemsize]).long()
    places = torch.arange(1, len(bits) + 1, device=bits.device)
    return int((bits * (2 * places * 0x9E3779B97F4A7C1 + 1)).sum())  # wraps around
