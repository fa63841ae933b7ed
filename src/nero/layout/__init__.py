"""Which dims of each parameter are one neuron's fan-in, and why."""

from nero.core.neurons import (
    BIAS,
    EMBEDDING,
    GAIN,
    LAYOUT_KEYS,
    OTHER,
    Layout,
    LayoutError,
    LayoutWarning,
    Neurons,
    layout_from_options,
    layout_from_shape,
    neurons,
    neurons_from_options,
)
from nero.layout.arrival import annotate
from nero.layout.description import Description, Row, describe
from nero.layout.groups import Overrides, param_groups
from nero.layout.hidden import hidden_matrices
from nero.layout.infer import infer_layouts
from nero.layout.named import NamedLayout
from nero.layout.registry import register_layout

__all__ = [
    "BIAS",
    "EMBEDDING",
    "GAIN",
    "LAYOUT_KEYS",
    "OTHER",
    "Description",
    "Layout",
    "LayoutError",
    "LayoutWarning",
    "NamedLayout",
    "Neurons",
    "Overrides",
    "Row",
    "annotate",
    "describe",
    "hidden_matrices",
    "infer_layouts",
    "layout_from_options",
    "layout_from_shape",
    "neurons",
    "neurons_from_options",
    "param_groups",
    "register_layout",
]
