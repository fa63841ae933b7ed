"""The GPU backend: kernels in Triton, the table that they read, their launch, and why to trust them."""

from nero.backends.triton.launch import TritonBackend, why_not, why_not_device

__all__ = ["TritonBackend", "why_not", "why_not_device"]
