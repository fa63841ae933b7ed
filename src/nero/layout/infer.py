"""Find the layout of every parameter of a model from the module that owns it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.parametrize import ParametrizationList

import nero.layout.modules  # noqa: F401  (fills the registry)
from nero.core.arguments import kind_of
from nero.core.neurons import BIAS, GAIN, OTHER, Layout, LayoutError, neurons
from nero.layout.registry import find_rule, shown_name


@dataclass(frozen=True)
class NamedLayout:
    """A parameter, its name, its layout, and the reason for it."""

    name: str
    param: nn.Parameter
    layout: Layout
    reason: str
    other_names: tuple[str, ...] = ()
    """Further names of a tied parameter."""
    conflict: str = ""
    """Why the owners of a tied parameter disagree; only an override can decide then."""


def infer_layouts(model: nn.Module) -> list[NamedLayout]:
    """Return the layout of every parameter, in the order of ``model.named_parameters()``.

    Where modules tie a parameter, its first owner gives the role; all must agree on the dims.

    Example:
        >>> from nero.layout import infer_layouts
        >>> for found in infer_layouts(nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))):
        ...     print(found.name, found.layout.role)
        0.weight neuron
        0.bias bias
        1.weight gain
        1.bias bias
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a torch.nn.Module, not {kind_of(model)}: layouts are found from modules, so "
            "pass an instance of the model itself, not its class or its parameters"
        )
    found: dict[nn.Parameter, NamedLayout] = {}
    for name, param, (layout, reason) in _walk(model):
        first = found.get(param)
        if first is None:
            found[param] = NamedLayout(name, param, layout, reason)
            continue
        found[param] = replace(
            first,
            reason=f"{first.reason}; tied to {name}",
            other_names=(*first.other_names, name),
            conflict=first.conflict
            if layout.has_dims_of(first.layout)
            else _conflict(first, name, layout, reason),
        )
    return list(found.values())


def _conflict(first: NamedLayout, name: str, layout: Layout, reason: str) -> str:
    return (
        f"`{first.name}` and `{name}` are one tied parameter, but {first.reason} says "
        f"{_short(first.layout)} and {reason} says {_short(layout)}; decide with an override, "
        f'for example overrides=[("{first.name}", {{"neuron_dims": (0,)}})]'
    )


def _walk(model: nn.Module) -> Iterator[tuple[str, nn.Parameter, tuple[Layout, str]]]:
    modules = dict(model.named_modules())
    for path, module in modules.items():
        for local_name, param in module.named_parameters(recurse=False, remove_duplicate=False):
            name = f"{path}.{local_name}" if path else local_name
            if isinstance(param, UninitializedParameter):
                raise LayoutError(
                    f"`{name}` has no shape yet: run the model once before building the optimizer"
                )
            if isinstance(module, ParametrizationList):
                owner_path, _, tensor_name = path.rpartition("parametrizations.")
                owner = modules[owner_path.rstrip(".")]
                yield name, param, _parametrised(owner, module, tensor_name, local_name, param)
            else:
                yield name, param, _owned(module, local_name, param)


def _owned(module: nn.Module, name: str, param: nn.Parameter) -> tuple[Layout, str]:
    rule = find_rule(module, name) or _reparametrised_by_hook(module, name)
    if rule is None:
        return _unknown(module, name, param)
    return rule


def _reparametrised_by_hook(module: nn.Module, name: str) -> tuple[Layout, str] | None:
    # torch.nn.utils.weight_norm leaves weight_g and weight_v, spectral_norm and prune weight_orig.
    base, _, suffix = name.rpartition("_")
    rule = find_rule(module, base) if base else None
    if rule is None or suffix not in ("g", "v", "orig"):
        return None
    layout, owner = rule
    if suffix == "g":
        return GAIN, f"{owner} with weight norm: the length of {base}"
    return layout, f"{owner}, behind a reparametrised {base}"


def _parametrised(
    owner: nn.Module,
    parametrization: ParametrizationList,
    tensor_name: str,
    name: str,
    param: nn.Parameter,
) -> tuple[Layout, str]:
    if name == "original0" and isinstance(parametrization[0], _WeightNorm):
        return GAIN, f"{shown_name(owner)} with weight norm: the length of {tensor_name}"
    if name == "original" or isinstance(parametrization[0], _WeightNorm):
        layout, reason = _owned(owner, tensor_name, param)
        return layout, f"{reason}, behind a parametrised {tensor_name}"
    return _unknown(parametrization, name, param)


def _unknown(module: nn.Module, name: str, param: nn.Parameter) -> tuple[Layout, str]:
    """Guess for a module that nobody registered, and say so in the reason."""
    cls = shown_name(module)
    if "bias" in name.split("_"):
        return BIAS, f"{cls} is not registered; by its name, a bias"
    if "Norm" in cls and sum(n > 1 for n in param.shape) <= 1:
        return GAIN, f"{cls} is not registered; by its name, a norm layer's gain"
    if param.ndim <= 1:
        return OTHER, f"{cls} is not registered; {param.ndim}-D, so no fan-in"
    if param.ndim == 3:
        return _stack(module, cls, param)
    return neurons(0), f"{cls} is not registered; taken as (out, in, ...)"


def _stack(module: nn.Module, cls: str, param: nn.Parameter) -> tuple[Layout, str]:
    # Hugging Face marks experts that are stored as (expert, in, out).
    if getattr(module, "is_transposed", None) is True:
        return neurons(0, 2), f"{cls} is marked is_transposed: a stack of (in, out) matrices"
    if param.shape[0] == 1:
        return neurons(0, 1), f"{cls} is not registered; (1, n, d), taken as n tokens or positions"
    return neurons(0, 1), f"{cls} is not registered; 3-D, taken as a stack of (out, in) matrices"


def _short(layout: Layout) -> str:
    return layout.role if layout.neuron_dims is None else f"neurons along dims {layout.neuron_dims}"
