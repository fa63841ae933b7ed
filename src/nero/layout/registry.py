"""Registered layouts of module classes: the built-in tables and the users' additions."""

import fnmatch
from collections.abc import Mapping

from torch import nn

from nero.core.neurons import Layout
from nero.layout.huggingface import HUGGING_FACE
from nero.layout.modules import TORCH, ModuleKey, Rules

_RULES: dict[ModuleKey, Rules] = {**TORCH, **HUGGING_FACE}


def register_layout(module: ModuleKey, rules: Rules) -> None:
    """Register the layouts of a module class.

    Args:
        module: the class, or its full dotted name if it should not be imported. Subclasses inherit the
            rules. Registering a class again replaces all its rules.
        rules: maps the parameter's name inside the module (``*`` and ``?`` match) to its layout, or to a
            function of the module that returns it. The first match wins.

    Example:
        A linear layer that stores its weight as (in, out):

        >>> from nero.layout import BIAS, neurons, register_layout
        >>> class InOut(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.weight = nn.Parameter(torch.randn(10, 20))
        >>> register_layout(InOut, {"weight": neurons(1), "bias": BIAS})
        >>> print(nero.describe(InOut()).rows[0].num_neurons)
        20
    """
    is_dotted = isinstance(module, str) and "." in module
    if not is_dotted and not (isinstance(module, type) and issubclass(module, nn.Module)):
        raise TypeError(f"module must be a module class or its dotted name, not {module!r}")
    if not isinstance(rules, Mapping) or not rules:
        raise ValueError(f"rules must name at least one parameter, but are {rules!r}")
    for name, rule in rules.items():
        if not isinstance(name, str):
            raise TypeError(f"the keys of rules must be parameter names, not {name!r}")
        if not isinstance(rule, Layout) and not callable(rule):
            raise TypeError(f"the rule for {name!r} must be a Layout or a function, not {rule!r}")
    _RULES[module] = dict(rules)


def find_rule(module: nn.Module, name: str) -> tuple[Layout, str] | None:
    """Return the registered layout of ``module``'s parameter ``name`` and the module's class name."""
    for cls in type(module).__mro__:
        for key in (cls, f"{cls.__module__}.{cls.__qualname__}"):
            for pattern, rule in _RULES.get(key, {}).items():
                if fnmatch.fnmatchcase(name, pattern):
                    layout = rule if isinstance(rule, Layout) else rule(module)
                    if not isinstance(layout, Layout):
                        raise TypeError(
                            f"{key}'s rule for {name!r} must return a Layout, not {layout!r}"
                        )
                    return layout, shown_name(module)
    return None


def shown_name(module: nn.Module) -> str:
    """Return a module's class name for messages."""
    # torch.nn.utils.parametrize turns Linear into a class ParametrizedLinear.
    return type(module).__name__.removeprefix("Parametrized")
