"""Which dims of each parameter are one neuron's fan-in, found from the module that owns it."""

from nero.layout.description import Description, Row, describe
from nero.layout.groups import Overrides, param_groups
from nero.layout.hidden import hidden_matrices
from nero.layout.infer import NamedLayout, infer_layouts
from nero.layout.registry import register_layout
from nero.layout.spec import (
    BIAS,
    GAIN,
    LAYOUT_KEYS,
    OTHER,
    Layout,
    LayoutError,
    layout_from_options,
    layout_from_shape,
    neurons,
)

__all__ = [
    "BIAS",
    "GAIN",
    "LAYOUT_KEYS",
    "OTHER",
    "Description",
    "Layout",
    "LayoutError",
    "NamedLayout",
    "Overrides",
    "Row",
    "describe",
    "hidden_matrices",
    "infer_layouts",
    "layout_from_options",
    "layout_from_shape",
    "neurons",
    "param_groups",
    "register_layout",
]
