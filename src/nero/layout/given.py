"""The param groups of whatever an optimizer is given."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.optim import Optimizer

from nero.core.arguments import kind_of
from nero.layout.arrival import model_of, with_layouts
from nero.layout.groups import Overrides, grouped, resolve

Params: TypeAlias = (
    nn.Module | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
)


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
    _check_params(params)
    return with_layouts(params, of_outputs)


def _check_params(params: Any) -> None:
    """Raise unless ``params`` can be parameters or param groups; torch looks at each of them."""
    if isinstance(params, type):
        raise TypeError(
            f"params is {kind_of(params)}: build an instance of it first, {params.__name__}(...)"
        )
    if isinstance(params, Optimizer):
        raise TypeError(
            f"params is an optimizer ({kind_of(params)}): pass its model, or its param_groups"
        )
    if isinstance(params, Mapping):
        raise TypeError(
            "params is a single mapping: put a param group into a list, and pass the model itself"
        )
    if isinstance(params, str) or not isinstance(params, Iterable):
        raise TypeError(
            f"params must be a model, its parameters or param groups, not {kind_of(params)}"
        )
