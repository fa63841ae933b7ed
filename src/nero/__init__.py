"""Nero, the optimizer that turns each neuron by an angle and keeps it balanced.

>>> model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
>>> optimizer = nero.Nero(model)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from nero.optim import Balanced, Nero, cosine_schedule, project_, register_direction

__version__ = "0.2.0"

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
    "cosine_schedule",
    "describe",
    "functional",
    "layout",
    "param_groups",
    "project_",
    "register_direction",
    "register_layout",
]


def __getattr__(name: str) -> Any:
    # Imported at first use, so that `nero --version` does not import torch.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("baselines", "functional", "layout"):
        return import_module(f"nero.{name}")
    packages = map(import_module, ("nero.optim", "nero.layout", "nero.functional"))
    package = next(package for package in packages if name in package.__all__)
    value = globals()[name] = getattr(package, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
