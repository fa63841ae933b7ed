"""Nero, the optimiser that turns each neuron by an angle and keeps it balanced.

>>> model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
>>> optimizer = nero.Nero(model)
"""

from nero import baselines, functional, layout
from nero.functional import (
    BALANCED,
    INITIAL_SPHERE,
    MEAN_ONLY,
    NORM_ONLY,
    UNCONSTRAINED,
    Sphere,
)
from nero.layout import (
    LayoutError,
    LayoutWarning,
    annotate,
    describe,
    param_groups,
    register_layout,
)
from nero.optim import Balanced, Nero, project_

__version__ = "0.1.0"

__all__ = [
    "BALANCED",
    "INITIAL_SPHERE",
    "MEAN_ONLY",
    "NORM_ONLY",
    "UNCONSTRAINED",
    "Balanced",
    "LayoutError",
    "LayoutWarning",
    "Nero",
    "Sphere",
    "annotate",
    "baselines",
    "describe",
    "functional",
    "layout",
    "param_groups",
    "project_",
    "register_layout",
]
