"""Find neurons by watching one forward pass, on tensors that have shapes but no values."""

from nero.layout.observation.forward import Observation, observe

__all__ = ["Observation", "observe"]
