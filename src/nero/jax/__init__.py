"""Nero for JAX: an optax transformation, tested against the torch optimizer's conformance vectors.

>>> import nero.jax
>>> tx = nero.jax.nero(lr=0.01)
"""

try:
    import optax  # noqa: F401  (and with it jax)
except ImportError as error:
    raise ImportError(f"nero.jax needs {error.name}: pip install 'nero-optim[jax]'") from error

from nero.jax.layouts import find_layouts
from nero.jax.transform import NeroState, nero, project

__all__ = ["NeroState", "find_layouts", "nero", "project"]
