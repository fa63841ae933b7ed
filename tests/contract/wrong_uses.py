"""The names in which `wrong_uses_of_optimizers` and `wrong_uses_of_functions` are written.

Each row of those tables is an expression, as a user might type it; what it raises, or how it warns; and a
pattern that the message must match: the name of the argument, and for most what to do. `ADVICE` is what
every message must match. Statements are spelt as calls of the helpers below.
"""

import re
import traceback
import warnings
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

import nero
from nero import diagnostics, functional
from nero.baselines import Fromage, Lamb, Lars, Madam
from nero.layout import BIAS, Layout, hidden_matrices, infer_layouts, neurons

WrongUse: TypeAlias = tuple[str, type[Exception], str]
"""What was written, the error or warning, and a pattern of its message."""

VERBS = "ask|attach|build|call|convert|give|leave|load|make|pass|put|run|see|set|start|train|use"
ADVICE = re.compile(
    rf"\bmust\b|did you mean|is called|the (?:options|names|roles) are|[:;,] (?:or )?(?:{VERBS})\b"
)
"""How messages say what to do: what must be, what there is, or an order."""


MAX_LENGTH = 300
"""Of a message, in characters."""


class Odd(nn.Module):
    """A module with one parameter of any kind."""

    def __init__(self, value: Tensor, **kwargs: Any) -> None:
        super().__init__()
        self.odd = nn.Parameter(value, **kwargs)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))


def with_grads(model: nn.Module) -> nn.Module:
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    return model


def step_with(optimizer: torch.optim.Optimizer, **options: Any) -> None:
    """Change options of the second group, then step."""
    for group in optimizer.param_groups:
        with_grads(nn.ParameterList(group["params"]))
    optimizer.param_groups[1 % len(optimizer.param_groups)].update(options)
    optimizer.step()


def edited(optimizer: torch.optim.Optimizer, **options: Any) -> dict[str, Any]:
    """Return a state dict whose last group has other options."""
    packed = optimizer.state_dict()
    packed["param_groups"][-1].update(options)
    return packed


def adamw(params: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params)


def stepped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    step_with(optimizer)
    return optimizer


def register(*args: Any) -> None:
    """Register a layout, and forget it again."""
    from nero.layout.registry import _RULES

    before = dict(_RULES)
    try:
        nero.register_layout(*args)
        nero.describe(Odd(torch.ones(2, 2)))
    finally:
        _RULES.clear()
        _RULES.update(before)


class SinkThatRaises:
    def write(self, report: object) -> None:
        raise OSError("the disk is full")


def monitored_step(**options: Any) -> None:
    optimizer = nero.Nero(network())
    with diagnostics.TurningMonitor(optimizer, **options):
        step_with(optimizer)


def namespace() -> dict[str, Any]:
    """Return what the rows may use, made anew for each."""
    model = network()
    weight = torch.randn(3, 4)
    nero_state = {"exp_avg_norm": torch.zeros(3, 1)}

    def nero_update(**changed: Any) -> Any:
        arguments: dict[str, Any] = {
            **{"weight": weight, "grad": weight, "state": nero_state},
            **{"neurons": neurons(0).at((3, 4)), "step": 1, **changed},
        }
        rows = [arguments.pop(key) for key in ("weight", "grad", "state")]
        return functional.nero_update(*rows, **arguments)

    return {
        **vars(functional),
        **{name: getattr(diagnostics, name) for name in diagnostics.__all__},
        **{name: getattr(nero, name) for name in nero.__all__},
        **{f.__name__: f for f in (Fromage, Lamb, Lars, Madam)},
        **{f.__name__: f for f in (with_grads, step_with, edited, adamw, stepped, monitored_step)},
        **{f.__name__: f for f in (hidden_matrices, infer_layouts, neurons, register, Layout)},
        **{"torch": torch, "nn": nn, "nero": nero, "Odd": Odd, "BIAS": BIAS},
        **{"SinkThatRaises": SinkThatRaises, "nan": float("nan"), "inf": float("inf")},
        **{"model": model, "params": [*model.parameters()], "w": weight},
        **{"sgd": torch.optim.SGD(model.parameters(), lr=0.1), "groups": nero.param_groups(model)},
        **{"nero_update": nero_update},
        **{
            "frozen": network().requires_grad_(False),
            "ints": Odd(torch.ones(2, 2).int(), requires_grad=False),
        },
        **{"complex_model": Odd(torch.ones(2, 2, dtype=torch.complex64))},
    }


def check_is_heard(
    code: str, kind: type[Exception], named: str, names: dict[str, Any], packages: list[Path]
) -> None:
    """Hold what an expression raises, in our own code, or how it warns to its row of a table."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            eval(code, names)
        except Exception as error:
            raised, message = type(error), str(error)
            longest = len(message)
            where = traceback.extract_tb(error.__traceback__)[-1].filename
            is_ours = any(Path(where).is_relative_to(package) for package in packages)
            assert is_ours, f"raised in {where}: {message}"
        else:
            assert heard, "silent"
            raised = heard[-1].category
            message = "\n".join(str(each.message) for each in heard)
            longest = max(len(str(each.message)) for each in heard)
    assert raised is kind, message
    assert re.search(named, message, re.DOTALL), f"{named!r} is not in: {message}"
    assert longest <= MAX_LENGTH, f"{longest} characters: {message}"
    assert ADVICE.search(message), f"it does not say what to do: {message}"
