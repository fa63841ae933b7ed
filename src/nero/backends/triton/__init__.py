"""The GPU backend: Triton kernels, the table they read, their launch, and the self-test."""

from nero.backends.triton.launch import TritonBackend, why_not, why_not_device

__all__ = ["TritonBackend", "why_not", "why_not_device"]
