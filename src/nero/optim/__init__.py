"""The optimizers: thin shells that hold state and hand each step to a backend."""

from nero.core.directions import register_direction
from nero.optim.balanced import Balanced
from nero.optim.base import RelativeOptimizer
from nero.optim.nero import Nero
from nero.projection import project_
from nero.schedule import cosine_schedule

__all__ = [
    "Balanced",
    "Nero",
    "RelativeOptimizer",
    "cosine_schedule",
    "project_",
    "register_direction",
]
