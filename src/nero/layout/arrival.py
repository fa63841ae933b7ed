"""Layouts of parameters passed without their model, as by most trainers."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import GeneratorType, MappingProxyType
from typing import Any

from torch import Tensor, nn

from nero.core.neurons import LAYOUT_KEYS, OTHER, Layout, LayoutError, LayoutWarning, is_broadcast
from nero.core.warn import warn_user
from nero.layout.groups import Overrides, resolve, warn_of_guesses
from nero.layout.guess import constant_value
from nero.layout.infer import infer_layouts, settled_layouts
from nero.layout.marks import Mark, forget_marks, leave_mark, mark_of, new_mark
from nero.layout.named import NamedLayout
from nero.layout.owners import stated_layouts


def model_of(params: object) -> nn.Module | None:
    """Return the model, given the model or its ``parameters()`` or ``named_parameters()`` iterator.

    An iterator leads to its model only before its first item is consumed, and only if it yields the same
    parameters as the model's own ``parameters()``, which a class may override.

    Example:
        >>> from nero.layout.arrival import model_of
        >>> model = nn.Linear(3, 2)
        >>> model_of(model.parameters()) is model, model_of([*model.parameters()])
        (True, None)
    """
    if isinstance(params, nn.Module):
        return params
    if not isinstance(params, GeneratorType):
        return None
    is_named = params.gi_code is nn.Module.named_parameters.__code__
    is_ours = is_named or params.gi_code is nn.Module.parameters.__code__
    if not is_ours or inspect.getgeneratorstate(params) != inspect.GEN_CREATED:
        return None
    args = inspect.getgeneratorlocals(params)
    is_whole = args["recurse"] and not args.get("prefix") and args.get("remove_duplicate", True)
    model = args["self"]
    if not is_whole or not isinstance(model, nn.Module):
        return None
    # Use the method that made the iterator, since a class may override only the other one.
    method = nn.Module.named_parameters if is_named else nn.Module.parameters
    yielded = [item[1] if is_named else item for item in method(model)]
    return model if {*map(id, yielded)} == {*map(id, model.parameters())} else None


def annotate(model: nn.Module, *, overrides: Overrides = (), example: Any = None) -> nn.Module:
    """Store every parameter's layout on it, for optimizers that see only parameters.

    Trainers that accept an optimizer class and its options pass it parameters or param groups. Annotated
    parameters carry their layouts along. Annotate just before building the trainer: copies and shards of a
    model have new parameters, which must be annotated again.

    Args:
        model: the model; its values are not changed.
        overrides: name patterns and layouts, as in [`param_groups`][nero.param_groups].
        example: the model's input, as in [`param_groups`][nero.param_groups].

    Note:
        An optimizer built from the model itself infers the layouts again. From the annotations it then uses
        only overrides, and the layouts seen with ``example`` if modules still state the same ones.

    Returns:
        The model itself.

    Example:
        >>> model = nero.annotate(nn.Sequential(nn.ConvTranspose1d(4, 3, 2), nn.LayerNorm(8)))
        >>> optimizer = nero.Nero([*model.parameters()])
        >>> [(group["role"], group["neuron_dims"]) for group in optimizer.param_groups]
        [('neuron', (1,)), ('bias', None), ('gain', None)]
    """
    if isinstance(model, nn.Module):  # anything else is refused below
        forget_marks(model)
    resolved = resolve(model, overrides, example)
    for named, _, options in resolved:
        if options:
            raise TypeError(
                f"annotate stores layouts only: the override of `{named.name}` sets {', '.join(options)}; "
                "give that to the optimizer"
            )
    layouts = [named for named, _, _ in resolved]
    warn_of_guesses(layouts)
    for param, mark in _marks(model, layouts).items():
        leave_mark(param, mark)
    return model


def known_marks(model: nn.Module | None, params: Iterable[Tensor]) -> dict[Tensor, Mark]:
    """Return the marks that `annotate` would leave on the model; without a model, those on ``params``."""
    if model is None:
        marks = [(param, mark_of(param)) for param in params]
        return {param: mark for param, mark in marks if mark is not None}
    return _marks(model, infer_layouts(model))


def _marks(model: nn.Module, layouts: Sequence[NamedLayout]) -> dict[Tensor, Mark]:
    is_alone = not any(named.layout.role == "neuron" for named in layouts)
    return {
        named.param: new_mark(named, stated, is_alone=is_alone)
        for named, stated in zip(layouts, stated_layouts(model), strict=True)
    }


def with_layouts(
    params: Any, of_outputs: Mapping[str, Any] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Return param groups with the layouts stored by `annotate`.

    Groups whose parameters have different layouts are split. Matrices without a stored layout get one from
    their shapes, with a single warning.

    Args:
        params: parameters or param groups.
        of_outputs: options for annotated output layers; a group's own options are stronger.
    """
    items = list(params)
    if items and not isinstance(items[0], Mapping):
        items = [{"params": items}]
    groups: list[Any] = []
    guessed: list[tuple[str, Tensor]] = []
    for item in items:
        is_group = isinstance(item, Mapping)  # torch raises for anything else
        groups += _split(dict(item), guessed, of_outputs) if is_group else [item]
    _warn_of_shapes(guessed)
    return groups


def read_layouts(groups: Iterable[dict[str, Any]]) -> None:
    """Add the stored layouts to another optimizer's groups.

    Raises:
        LayoutError: if a group's parameters have different layouts, since we cannot split it.
    """
    guessed: list[tuple[str, Tensor]] = []
    for group in groups:
        parts = _split(group, guessed, {})
        if len(parts) > 1:
            raise LayoutError(
                "a param group has parameters of different layouts; build the optimizer from "
                "nero.param_groups(model)"
            )
        group.update({key: parts[0][key] for key in LAYOUT_KEYS if parts[0].get(key) is not None})
    _warn_of_shapes(guessed)


def _warn_of_shapes(guessed: Sequence[tuple[str, Tensor]]) -> None:
    if guessed:
        name, param = guessed[0]
        warn_user(
            f"{len(guessed)} parameter(s) came without their model, first {name} of shape "
            f"{tuple(param.shape)}: their neurons are assumed to lie along dim 0, which is wrong for "
            "layers that store (in, out); pass the model, or call nero.annotate(model) first",
            LayoutWarning,
        )


def _split(
    group: dict[str, Any], guessed: list[tuple[str, Tensor]], of_outputs: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Split a group by its parameters' layouts."""
    params = group.get("params")
    if params is None or isinstance(params, set | nn.Module):
        return [group]  # torch raises
    if any(key in group for key in LAYOUT_KEYS):
        return [group]  # the group has its own layout
    of_model = _layouts_of(model_of(params))
    params = [params] if isinstance(params, Tensor) else list(params)
    names = group.get("param_names")
    if names and len(names) == len(params) and not isinstance(params[0], tuple):
        # torchtitan passes names as a separate list, which could not be split along with the parameters.
        group = {key: value for key, value in group.items() if key != "param_names"}
        params = [*zip(names, params, strict=True)]
    parts: dict[tuple[Layout | None, bool], list[Any]] = {}
    for position, item in enumerate(params):
        name, param = item if isinstance(item, tuple) else (f"number {position}", item)
        layout, is_output = None, False
        if isinstance(param, Tensor):
            layout, is_output = of_model[param] if param in of_model else _stored(param)
        if layout is None and isinstance(param, Tensor) and not is_broadcast(param.shape):
            guessed.append((f"`{name}`" if isinstance(item, tuple) else name, param))
        parts.setdefault((layout, is_output and bool(of_outputs)), []).append(item)
    if not parts:
        return [{**group, "params": params}]
    return [
        {**(of_outputs if is_output else {}), **group, **_options(layout), "params": part}
        for (layout, is_output), part in parts.items()
    ]


def _options(layout: Layout | None) -> dict[str, Any]:
    return {"role": None} if layout is None else layout.as_options()


def _layouts_of(model: nn.Module | None) -> dict[Tensor, tuple[Layout, bool]]:
    """Return the layouts of a model passed as one group, and which parameters are output layers.

    In transfer learning it is part of another model, so only annotated layers count as output layers.
    """
    if model is None:
        return {}
    layouts = settled_layouts(model)
    for named in layouts:
        if named.conflict:
            raise LayoutError(named.conflict)
    warn_of_guesses(layouts)
    return {named.param: (named.layout, _stored(named.param)[1]) for named in layouts}


def _stored(param: Tensor) -> tuple[Layout | None, bool]:
    """Return the layout stored on a parameter, and whether it is an output layer."""
    mark = mark_of(param)
    if mark is None and not is_broadcast(param.shape) and constant_value(param):
        return OTHER, False
    return (mark.layout, mark.is_output) if mark else (None, False)
