"""The param groups of whatever an optimizer is given."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor

from nero.layout import Overrides
from nero.layout.arrival import model_of, with_layouts
from nero.layout.groups import grouped, resolve
from nero.optim.checks import check_params


def as_groups(
    params: Any,
    overrides: Overrides = (),
    example: Any = None,
    of_outputs: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Return the param groups of a model, of an iterator that leads to one, or of bare parameters."""
    model = model_of(params)
    if model is not None:
        return grouped(resolve(model, overrides, example, of_outputs))
    if overrides or example is not None:
        name = "overrides match parameter names" if overrides else "example is a model's input"
        raise TypeError(f"{name}: pass the model, not its parameters")
    if isinstance(params, Tensor):
        return params  # torch refuses it, and says why
    check_params(params)
    return with_layouts(params, of_outputs)
