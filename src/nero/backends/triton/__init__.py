"""The GPU backend: kernels in Triton, the table that they read, and their launch."""

from nero.backends.triton.launch import step_, why_not, why_not_device

__all__ = ["step_", "why_not", "why_not_device"]
