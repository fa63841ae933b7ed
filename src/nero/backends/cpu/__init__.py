"""The CPU backend: a kernel in numba, the plan that feeds it, and its form for compilers."""

from nero.backends.cpu.plan import CpuBackend, missing, why_not

__all__ = ["CpuBackend", "missing", "why_not"]
