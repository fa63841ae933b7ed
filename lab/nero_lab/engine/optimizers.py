"""The optimizers that the lab compares, each as one would set it up, and those of the user.

The paper's baselines are set up as in the paper: momentum 0, second-moment constant 0.999, no weight
decay. The others are what one would pick today, with the settings that their authors recommend; the
learning rate is what a sweep tunes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from nero import Balanced, Nero, param_groups
from nero.baselines import Lamb, Madam
from nero.core.presets import PresetName
from nero.core.sphere import Sphere
from nero.layout import hidden_matrices
from nero_lab.engine.errors import ConfigError
from nero_lab.engine.references import is_reference, resolve
from nero_lab.engine.task import FINE_GRID, PAPER_GRID

Build = Callable[[nn.Module, float], list[Optimizer]]


@dataclass(frozen=True)
class Entry:
    """How to set up one optimizer.

    Args:
        build: makes it from a model and a learning rate; several if parameters are divided.
        lr: the rate where a task names none.
        grid: the rates of a sweep where the task has none, from small to large.
        about: one line for ``nero-lab list``.
        differences: what the report says of it: how it differs from the code of the paper's authors, or
            from the others.
        warmup_only: keep the warm-up of a recipe's schedule, and nothing else of it.
    """

    build: Build
    lr: float
    grid: tuple[float, ...]
    about: str
    differences: str = ""
    warmup_only: bool = False


def _nero(constraint: str) -> Build:
    return lambda model, lr: [Nero(model, lr, constraint=constraint)]


def _nero_initial(model: nn.Module, lr: float) -> list[Optimizer]:
    fresh = {"lr": 0.01, "constraint": "balanced"}
    overrides = {f"{name}.*": fresh for name in getattr(model, "new_layers", ())}
    return [Nero(model, lr, constraint="initial", overrides=overrides)]


def _preset(model: nn.Module, lr: float, preset: PresetName, **options: Any) -> list[Optimizer]:
    is_scaled = getattr(model, "scales_embedding", False)
    constraint = "balanced" if is_scaled else None
    return [Nero(model, lr, preset=preset, constraint=constraint, **options)]


def _nero_preset(preset: PresetName, **options: Any) -> Build:
    return lambda model, lr: _preset(model, lr, preset, **options)


def _nero_regularized(model: nn.Module, lr: float) -> list[Optimizer]:
    return [Nero(model, lr, bias_scale=1.0, gain_penalty=1e-3)]


def _sgd(model: nn.Module, lr: float) -> list[Optimizer]:
    return [torch.optim.SGD(model.parameters(), lr)]


def _sgd_momentum(model: nn.Module, lr: float) -> list[Optimizer]:
    return [torch.optim.SGD(model.parameters(), lr, momentum=0.9, weight_decay=1e-4)]


def _adam(model: nn.Module, lr: float) -> list[Optimizer]:
    return [torch.optim.Adam(model.parameters(), lr, betas=(0.0, 0.999))]


def _adam_momentum(model: nn.Module, lr: float) -> list[Optimizer]:
    return [torch.optim.Adam(model.parameters(), lr)]


def _adamw(model: nn.Module, lr: float) -> list[Optimizer]:
    return [torch.optim.AdamW(_decayed(model), lr, betas=(0.9, 0.95), weight_decay=0.1)]


def _lamb(model: nn.Module, lr: float) -> list[Optimizer]:
    return [Lamb(model, lr, betas=(0.0, 0.999), weight_decay=0.0)]


def _lamb_clamped(model: nn.Module, lr: float) -> list[Optimizer]:
    return [Lamb(model, lr, betas=(0.0, 0.999), weight_decay=0.0, max_norm=10.0)]


def _lamb_balanced(model: nn.Module, lr: float) -> list[Optimizer]:
    return [Balanced(Lamb(param_groups(model), lr, betas=(0.0, 0.999), weight_decay=0.0))]


def _lamb_momentum(model: nn.Module, lr: float) -> list[Optimizer]:
    return [Lamb(model, lr, betas=(0.9, 0.999), weight_decay=0.0)]


def _madam(model: nn.Module, lr: float) -> list[Optimizer]:
    return [Madam(model, lr)]


def _madam_balanced(model: nn.Module, lr: float) -> list[Optimizer]:
    return [Balanced(Madam(param_groups(model), lr))]


def _muon(model: nn.Module, lr: float) -> list[Optimizer]:
    hidden = _hidden_matrices(model)
    # Scaled to the size of AdamW's updates, so that one rate serves both.
    muon = torch.optim.Muon(hidden, lr, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    return [muon, _adamw_without(hidden, model, lr)]


def _normuon(model: nn.Module, lr: float) -> list[Optimizer]:
    from pytorch_optimizer import NorMuon

    hidden = _hidden_matrices(model)
    group = {"params": hidden, "use_muon": True}
    normuon = NorMuon([group], lr, weight_decay=0.1, update_scale="match_rms")
    return [normuon, _adamw_without(hidden, model, lr)]


def _adamw_without(hidden: list[nn.Parameter], model: nn.Module, lr: float) -> Optimizer:
    taken = {id(param) for param in hidden}
    rest = [
        {**group, "params": [param for param in group["params"] if id(param) not in taken]}
        for group in _decayed(model)
    ]
    return torch.optim.AdamW(rest, lr, betas=(0.9, 0.95), weight_decay=0.1)


def _soap(model: nn.Module, lr: float) -> list[Optimizer]:
    from pytorch_optimizer import SOAP

    # Its paper doesn't precondition vocabularies of 32,000 words (limit 10,000); ours are smaller.
    return [SOAP(_decayed(model), lr, weight_decay=0.1, max_precondition_dim=2048)]


def _schedule_free(model: nn.Module, lr: float) -> list[Optimizer]:
    from schedulefree import AdamWScheduleFree

    if any(isinstance(module, _BatchNorm) for module in model.modules()):
        raise ConfigError(
            "schedule-free AdamW evaluates different weights than it trains, so they do not match the "
            "running statistics of batch norm; choose another optimizer for this network"
        )
    return [AdamWScheduleFree(_decayed(model), lr, betas=(0.9, 0.95), weight_decay=0.1)]


def _prodigy(model: nn.Module, lr: float) -> list[Optimizer]:
    from prodigyopt import Prodigy

    # Its authors advise to leave lr at 1 and to tune the coefficient of its estimate instead; and, for
    # runs with a warm-up, the safeguard that keeps the estimate from growing there.
    return [
        Prodigy(
            _decayed(model),
            lr=1.0,
            d_coef=lr,
            weight_decay=0.1,
            safeguard_warmup=True,
            use_bias_correction=True,
        )
    ]


def _decayed(model: nn.Module) -> list[dict[str, Any]]:
    """Divide parameters into matrices, which decay, and vectors, which do not."""
    trained = [param for param in model.parameters() if param.requires_grad]
    return [
        {"params": [param for param in trained if param.ndim >= 2]},
        {"params": [param for param in trained if param.ndim < 2], "weight_decay": 0.0},
    ]


def _hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Return the matrices between the first and the last layer, which Muon is meant for."""
    outer = getattr(model, "outer_layers", None)
    if outer is None:
        raise ConfigError(
            f"Muon is for hidden matrices, and {type(model).__name__} does not say which those are: give "
            "it outer_layers, the names of all layers that are not hidden"
        )
    return hidden_matrices(model, outer_layers=outer)


_INITIAL = {"role=hidden": {"constraint": Sphere("initial")}}
_ROWS = (0.01, 0.02, 0.03, 0.06, 0.1)
_NERO = (0.01, 0.03, 0.06, 0.1, 0.2)
_ADAM = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
_LAMB = (3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
_MOMENTUM = (1e-3, 3e-3, 6e-3, 1e-2, 2e-2)

_NERO_DIFFERS = (
    "Without the norm constraint, our Nero multiplies a step by the neuron's own norm, as in the "
    "paper's pseudocode. The authors' code multiplies it by the mean initial norm of the tensor's neurons."
)
_LAMB_DIFFERS = (
    "The authors' LAMB clamps the weight norm at 10 and has no bias correction. Ours follows the LAMB "
    "paper."
)
_MADAM_DIFFERS = (
    "The authors' Madam limits a gradient to 10 times its average, ours to 8 times, as in the Madam "
    "paper. Madam never moves a parameter that starts at zero."
)

OPTIMIZERS: dict[str, Entry] = {
    "nero": Entry(_nero("balanced"), 0.01, _NERO, "Nero, as in the paper"),
    "nero-none": Entry(_nero("none"), 0.01, FINE_GRID, "Nero without constraints", _NERO_DIFFERS),
    "nero-mean": Entry(_nero("mean"), 0.01, FINE_GRID, "Nero, only mean zero", _NERO_DIFFERS),
    "nero-norm": Entry(_nero("norm"), 0.01, FINE_GRID, "Nero, only norm one"),
    "nero-initial": Entry(
        _nero_initial,
        1e-3,
        (3e-4, 1e-3, 3e-3, 1e-2),
        "Nero, initial norms, for fine-tuning; new layers balanced, at 0.01",
    ),
    "nero-rows": Entry(
        _nero_preset("rows"),
        0.03,
        _ROWS,
        "Nero, preset rows: the peak norm, momentum 0.9, embeddings of norm sqrt(dim)",
    ),
    "nero-polar": Entry(
        _nero_preset("polar"),
        0.03,
        _ROWS,
        "Nero, preset polar: the same, with polar directions in hidden layers",
    ),
    "nero-rows-rms": Entry(
        _nero_preset("rows", norm="rms", beta=0.999),
        0.03,
        _ROWS,
        "preset rows with the paper's norm",
    ),
    "nero-polar-rms": Entry(
        _nero_preset("polar", norm="rms", beta=0.999),
        0.03,
        _ROWS,
        "preset polar with the paper's norm",
    ),
    "nero-rows-initial": Entry(
        _nero_preset("rows", overrides=_INITIAL),
        0.03,
        _ROWS,
        "preset rows, hidden layers at their initial norms",
    ),
    "nero-polar-initial": Entry(
        _nero_preset("polar", overrides=_INITIAL),
        0.03,
        _ROWS,
        "preset polar, hidden layers at their initial norms",
    ),
    "nero-regularized": Entry(
        _nero_regularized,
        0.02,
        _NERO,
        "Nero with bias scale 1 and gains pulled towards one (section 5.6)",
        "The paper does not give the strength of its penalty on gains. Ours is 0.001.",
    ),
    "sgd": Entry(_sgd, 0.1, (0.03, 0.1, 0.3, 1.0, 3.0), "SGD without momentum, as in the paper"),
    "adam": Entry(_adam, 1e-3, _ADAM, "Adam, beta1 = 0, as in the paper"),
    "adam-momentum": Entry(_adam_momentum, 1e-3, _ADAM, "Adam, torch's defaults, beta1 = 0.9"),
    "lamb": Entry(_lamb, 0.01, _LAMB, "LAMB, beta1 = 0, as in the paper", _LAMB_DIFFERS),
    "lamb-clamped": Entry(
        _lamb_clamped,
        0.01,
        _LAMB,
        "LAMB with norms clamped at 10, as in the authors' code",
        "Layers whose norm exceeds 10 take smaller relative steps than the others.",
    ),
    "lamb-momentum": Entry(_lamb_momentum, 0.01, _LAMB, "LAMB, beta1 = 0.9", _LAMB_DIFFERS),
    "lamb-balanced": Entry(
        _lamb_balanced, 0.01, FINE_GRID, "LAMB with Nero's constraints", _LAMB_DIFFERS
    ),
    "madam": Entry(_madam, 0.01, _LAMB, "Madam, as in the paper", _MADAM_DIFFERS),
    "madam-balanced": Entry(
        _madam_balanced, 0.01, FINE_GRID, "Madam with Nero's constraints", _MADAM_DIFFERS
    ),
    "adamw": Entry(
        _adamw, 1e-3, (3e-4, 1e-3, 3e-3, 6e-3, 1e-2), "AdamW (0.9, 0.95), decay 0.1 on matrices"
    ),
    "sgd-momentum": Entry(
        _sgd_momentum, 0.1, (0.01, 0.03, 0.1, 0.3, 1.0), "SGD, momentum 0.9, decay 1e-4"
    ),
    "muon": Entry(_muon, 3e-3, _MOMENTUM, "torch's Muon for hidden matrices, AdamW for the rest"),
    "normuon": Entry(
        _normuon,
        3e-3,
        _MOMENTUM,
        "pytorch_optimizer's NorMuon for hidden matrices, AdamW for the rest",
    ),
    "soap": Entry(
        _soap,
        3e-3,
        (3e-4, 1e-3, 3e-3, 6e-3, 1e-2),
        "pytorch_optimizer's SOAP",
        "Like the vocabularies in its paper, dims above 2,048 have no preconditioner.",
    ),
    "schedule-free": Entry(
        _schedule_free,
        3e-3,
        _MOMENTUM,
        "schedule-free AdamW, warm-up only",
        "It uses only the warm-up of the recipe's schedule, as its authors intend.",
        warmup_only=True,
    ),
    "prodigy": Entry(
        _prodigy,
        1.0,
        (0.5, 1.0, 2.0, 4.0, 8.0),
        "Prodigy, which estimates its own learning rate; we tune its d_coef",
        "Its learning rate here is its d_coef, the only number that its authors advise tuning; its lr "
        "is 1.",
    ),
}
"""Every optimizer, by the name that ``--optimizer`` takes."""


def find_optimizer(name: str) -> Entry:
    """Return an entry of ``OPTIMIZERS``, or make one from ``package.module:function``.

    The function takes a model and a learning rate, and returns an optimizer or a list of them. It is
    swept over the paper's rates unless others are given.

    Example:
        >>> find_optimizer("adamw").lr
        0.001

    Raises:
        LookupError: if there is none of that name.
        ConfigError: if there is no such function.
    """
    if not is_reference(name):
        return OPTIMIZERS[name]
    build = resolve(name, what="function")
    if not callable(build):
        raise ConfigError(f"{name} is not a function of a model and a learning rate")

    def as_list(model: nn.Module, lr: float) -> list[Optimizer]:
        made = build(model, lr)
        found = made if isinstance(made, list) else [made]
        for optimizer in found:
            if not isinstance(optimizer, Optimizer):
                raise ConfigError(f"{name} returned {type(optimizer).__name__}, not an optimizer")
        if not found:
            raise ConfigError(f"{name} returned no optimizer")
        return found

    return Entry(as_list, 0.01, PAPER_GRID, name)
