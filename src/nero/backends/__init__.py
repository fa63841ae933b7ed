"""Implementations of the same update: plain torch operations and fused kernels.

A backend runs a whole step with ``step_(updates)``. If the fan-in is sharded, it runs two halves,
``gram`` and ``apply_``. `backend_name` chooses one per parameter; each optimizer has its own backends.
"""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from nero.backends import cpu, plain, triton
from nero.backends.geometry import is_opaque
from nero.backends.triton import trust
from nero.core.gram import Gram
from nero.core.rule import Turn
from nero.core.update import Update

__all__ = [
    "Backend",
    "backend_name",
    "new_backends",
    "why_not_fused",
]


class Backend(Protocol):
    """Runs a step, either whole or in two halves with a reduction across ranks in between."""

    def step_(self, updates: Sequence[Update]) -> None:
        """Update, in place, the weights and state of every parameter; gradients are only read."""

    def gram(self, updates: Sequence[Update]) -> list[Gram]:
        """Compute the Gram matrix of this rank's part of every neuron."""

    def apply_(self, updates: Sequence[Update], turns: Sequence[Turn]) -> None:
        """Write new rows and state."""


def new_backends() -> dict[str, Backend]:
    """Return new backends for one optimizer, by name."""
    return {
        "plain": plain,
        "cpu": cpu.CpuBackend(),
        "triton": triton.TritonBackend(trust.agrees_or_raises),
        "triton or plain": triton.TritonBackend(trust.agrees_or_warns),
    }


KERNELS = {"cpu": "cpu", "cuda": "triton"}
"""The fused kernel for each device type; ROCm devices are cuda, too."""


def backend_name(weight: Tensor, *, fused: bool | None) -> str:
    """Return the name of a parameter's fastest backend among those that ``fused`` allows.

    Args:
        weight: the parameter, or this rank's shard of it.
        fused: ``None`` picks the fastest, ``False`` the plain one, ``True`` requires a kernel; whether one
            can run is checked when a parameter is added, with `why_not_fused`.

    Note:
        On GPUs the Triton kernel is tested before its first step, so ``None`` means "triton or plain".

    Example:
        >>> from nero.backends import backend_name
        >>> backend_name(torch.zeros(3), fused=False), backend_name(torch.zeros(3), fused=None)
        ('plain', 'cpu')
    """
    if fused is False:
        return "plain"
    kernel = KERNELS.get(weight.device.type)
    if kernel == "triton":
        name = "triton" if fused else "triton or plain"
        if torch.compiler.is_compiling():
            # Tracing cannot query the device. The operator does, and falls back to plain operations.
            return "plain" if is_opaque(weight) else name
        reason = triton.why_not_device(weight.device)
        if reason is None:
            return name
        _say_once(f"Nero uses plain torch operations instead of a fused kernel: {reason}")
        return "plain"
    if cpu.missing() and not torch.compiler.is_compiling():
        _say_once(f"Nero uses plain torch operations instead of a fused kernel: {cpu.missing()}")
    return "plain" if cpu.why_not(weight) else "cpu"


def why_not_fused(weight: Tensor) -> str | None:
    """Return why no fused kernel can update a parameter, or ``None`` if one can.

    Example:
        >>> from nero.backends import why_not_fused
        >>> why_not_fused(torch.zeros(3, device="meta"))
        'it is on meta'
    """
    if KERNELS.get(weight.device.type) == "triton":
        return triton.why_not_device(weight.device)
    return cpu.why_not(weight)


@cache
def _say_once(message: str) -> None:
    logging.getLogger("nero").info(message)
