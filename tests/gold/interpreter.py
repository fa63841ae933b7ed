"""Step a public optimizer through the Triton kernels, in Triton's interpreter.

`step_in_interpreter` is the one place in this folder that knows the package's internals: without a GPU no
public option selects Triton. Triton reads ``TRITON_INTERPRET`` when it is imported, so set it before the
process starts.
"""

from unittest import mock

import torch
from torch.optim import Optimizer


def step_in_interpreter(optimizer: Optimizer) -> None:
    """Take one step of ``optimizer``, built with ``fused=None``, by the Triton backend."""
    from nero.backends import triton

    reason = triton.why_not_device(torch.device("cpu"))
    if reason is not None:
        raise RuntimeError(f"Triton's interpreter is off: {reason}; set TRITON_INTERPRET=1")
    backends = optimizer.rule._backends  # type: ignore[attr-defined]
    kernel = triton.TritonBackend()
    with mock.patch.dict(backends, plain=kernel, cpu=kernel):
        optimizer.step()
