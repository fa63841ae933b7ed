"""The same update at different speeds, behind one signature: ``step_(tasks)``."""

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

import torch
from torch import Tensor

from nero.backends import compiled, cpu, plain, triton
from nero.backends.task import NONFINITE, NeroOptions, NeroTask, Nonfinite

Backend: TypeAlias = Callable[[Sequence[NeroTask]], None]

__all__ = [
    "NONFINITE",
    "Backend",
    "NeroOptions",
    "NeroTask",
    "Nonfinite",
    "is_planning",
    "select_backend",
    "why_not_fused",
]


def select_backend(*, fused: bool | None) -> Backend:
    """Return the fastest backend that ``fused`` allows.

    Args:
        fused: ``None`` picks, ``False`` takes the plain one, ``True`` insists on a kernel (what stands
            in its way is found when a parameter is added: see `why_not_fused`).

    Note:
        On GPUs ``None`` is plain: the Triton kernel has not been run on one yet, and waits to be asked for.

    Example:
        >>> from nero.backends import plain, select_backend
        >>> select_backend(fused=False) is plain.step_
        True
    """
    if fused is False:
        return plain.step_
    if torch.compiler.is_compiling():
        return plain.step_ if cpu.missing() else compiled.step_
    if fused:
        return _step_fused
    if cpu.missing():
        _say_once(f"Nero runs on plain torch operations: {cpu.missing()}")
        return plain.step_
    return cpu.step_


def is_planning(*, fused: bool | None) -> bool:
    """Tell whether ``fused`` picks a backend that does, for plain memory of a CPU, what `cpu.Plan` does."""
    return select_backend(fused=fused) in (cpu.step_, _step_fused)


def why_not_fused(weight: Tensor) -> str | None:
    """Return why no fused kernel can update a parameter, or ``None`` if one can.

    Example:
        >>> from nero.backends import why_not_fused
        >>> why_not_fused(torch.zeros(3, device="meta"))
        'it is on meta'
    """
    return triton.why_not_device(weight.device) if weight.is_cuda else cpu.why_not(weight)


def _step_fused(tasks: Sequence[NeroTask]) -> None:
    on_gpu = [task for task in tasks if task.weight.is_cuda]
    if on_gpu:
        triton.step_(on_gpu)
    cpu.step_([task for task in tasks if not task.weight.is_cuda])


@cache
def _say_once(message: str) -> None:
    logging.getLogger("nero").info(message)
