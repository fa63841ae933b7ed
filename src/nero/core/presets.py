"""Presets, and the function that resolves every option."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from nero.core.neurons import LayoutWarning
from nero.core.spec import Hyper, learning_rate
from nero.core.sphere import Sphere
from nero.core.warn import warn_user

PresetName: TypeAlias = Literal["paper", "rows", "polar"]
CHOSEN = "chosen"
"""The group option that lists the options chosen by the user, also in copies, pickles and checkpoints."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Preset(NamedTuple):
    """Options that work together, under a name that a trainer can pass on."""

    options: Mapping[str, Any]
    by_role: Mapping[str, Mapping[str, Any]]
    """Options for parameters with a role."""
    slow_lr: float
    """A smaller learning rate was probably meant for Adam."""
    of_outputs: Mapping[str, Any] = _NOTHING
    """Options for output layers, if they are known."""

    @property
    def lr(self) -> float:
        """The learning rate."""
        return float(self.options["lr"])

    def marks_outputs(self, chosen: Iterable[str]) -> bool:
        """Whether output layers get options of their own, given the options chosen by the user."""
        return not self.of_outputs.keys() <= {*chosen}


# A batch uses few rows of a table, so tables forget their peaks faster. Both betas must exceed the
# momentum, or a single gradient would turn a row by lr at every later step.
_PEAK = {"norm": "peak", "beta": 0.99}
_TABLE = {"beta": 0.95}
_LARGE_EMBEDDINGS = {"embedding": {"constraint": Sphere(radius="sqrt_dim"), **_TABLE}}

PRESETS: dict[PresetName, Preset] = {
    "paper": Preset({"lr": 0.01, "momentum": 0.0, "direction": "gradient"}, {}, slow_lr=1e-4),
    "rows": Preset(
        {"lr": 0.03, "momentum": 0.9, "direction": "gradient", **_PEAK},
        _LARGE_EMBEDDINGS,
        slow_lr=6e-4,
        of_outputs=_TABLE,
    ),
    "polar": Preset(
        {"lr": 0.03, "momentum": 0.9, "direction": "polar", **_PEAK},
        _LARGE_EMBEDDINGS,
        slow_lr=6e-4,
        of_outputs={"direction": "gradient", **_TABLE},
    ),
}


def find_preset(name: str) -> Preset:
    """Return a preset by name."""
    if not isinstance(name, str) or name not in PRESETS:
        raise ValueError(f"preset must be one of {get_args(PresetName)}, not {name!r}")
    return PRESETS[name]


def resolve_options(
    preset: str,
    given: Mapping[str, Any],
    *,
    role: str | None = None,
    is_output: bool = False,
    own: Mapping[str, Any] = _NOTHING,
) -> dict[str, Any]:
    """Resolve the options of a parameter: default < preset < role < output < given < override.

    ``None`` means "not chosen" everywhere, and leaves an option to the levels below.

    Args:
        preset: the preset's name.
        given: the optimizer's arguments.
        role: the parameter's role, if known.
        is_output: whether it is an output layer.
        own: the parameter's own options, from an override or its param group.

    Example:
        >>> from nero.core.presets import resolve_options
        >>> given = {"lr": None, "momentum": 0.5}
        >>> options = resolve_options("polar", given, role="embedding", own={"lr": 0.02})
        >>> options["lr"], options["momentum"], str(options["constraint"])
        (0.02, 0.5, 'mean 0, norm sqrt_dim')
        >>> resolve_options("polar", {}, role="neuron", is_output=True)["direction"]
        'gradient'
    """
    defaults = find_preset(preset)
    levels = (
        Hyper._field_defaults,
        defaults.options,
        defaults.by_role.get(role or "", _NOTHING),
        defaults.of_outputs if is_output else _NOTHING,
        given,
        own,
    )
    return {name: value for level in levels for name, value in level.items() if value is not None}


def chosen_names(preset: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the options that differ from the preset's, for groups without a record of choices.

    Example:
        >>> from nero.core.presets import chosen_names
        >>> chosen_names("rows", {"lr": 0.03, "momentum": 0.5})
        ('momentum',)
    """
    unchosen = resolve_options(preset, _NOTHING)
    return tuple(
        name for name in sorted(unchosen) if options.get(name, unchosen[name]) != unchosen[name]
    )


def read_rate(lr: Any) -> Any:
    """Read a learning rate; ``None`` leaves it to the preset."""
    return None if lr is None else learning_rate("lr", lr)


def as_text(options: Mapping[str, Any]) -> str:
    """Return options as they are passed.

    Example:
        >>> from nero.core.presets import as_text
        >>> as_text({"beta": 0.95, "norm": "peak"})
        "beta=0.95, norm='peak'"
    """
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


def warn_of_no_outputs(preset: str, advice: str) -> None:
    """Warn that no output layer is known, and say which options of the preset are lost."""
    lost = as_text(find_preset(preset).of_outputs)
    warn_user(
        f"no output layer is known, which preset={preset!r} would give {lost}; {advice}",
        LayoutWarning,
    )
