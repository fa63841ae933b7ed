"""The CPU backend: a kernel in numba, and the plan that feeds it."""

from nero.backends.cpu.plan import CpuBackend, missing, why_not

__all__ = ["CpuBackend", "missing", "why_not"]
