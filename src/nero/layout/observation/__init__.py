"""Find neurons by observing one forward pass on fake tensors, which have shapes but no values."""

from nero.layout.observation.forward import Observation, observe

__all__ = ["Observation", "observe"]
