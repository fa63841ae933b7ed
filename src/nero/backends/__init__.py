"""The same update at different speeds.

A backend takes a whole step, ``step_(updates)``, or sums and writes separately, for neurons that ranks
share. `backend_name` chooses for each parameter; an optimizer keeps backends of its own.
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
    """What takes a step, at once or in two halves, between which ranks add up their sums."""

    def step_(self, updates: Sequence[Update]) -> None:
        """Update, in place, the weights and state of every parameter; gradients are only read."""

    def gram(self, updates: Sequence[Update]) -> list[Gram]:
        """Compute the Gram matrix of what this rank holds of every neuron."""

    def apply_(self, updates: Sequence[Update], turns: Sequence[Turn]) -> None:
        """Write new rows and state."""


def new_backends() -> dict[str, Backend]:
    """Return the backends of one optimizer by name, with nothing planned yet."""
    return {
        "plain": plain,
        "cpu": cpu.CpuBackend(),
        "triton": triton.TritonBackend(trust.agrees_or_raises),
        "triton or plain": triton.TritonBackend(trust.agrees_or_warns),
    }


KERNELS = {"cpu": "cpu", "cuda": "triton"}
"""The fused kernel that each type of device has; ROCm calls its devices cuda, too."""


def backend_name(weight: Tensor, *, fused: bool | None) -> str:
    """Return the name of the fastest backend for a parameter that ``fused`` allows.

    Args:
        weight: the parameter; where it is sharded, what this rank holds of it.
        fused: ``None`` picks, ``False`` takes the plain one, ``True`` insists on a kernel (what stands
            in its way is found when a parameter is added: see `why_not_fused`).

    Note:
        On GPUs the Triton kernel tests itself before its first step, so ``None`` is "triton or plain".

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
            # It cannot look at the device. The operator does, and takes plain operations if need be.
            return "plain" if is_opaque(weight) else name
        reason = triton.why_not_device(weight.device)
        if reason is None:
            return name
        _say_once(f"Nero runs on plain torch operations: {reason}")
        return "plain"
    if cpu.missing() and not torch.compiler.is_compiling():
        _say_once(f"Nero runs on plain torch operations: {cpu.missing()}")
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
