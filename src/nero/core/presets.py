"""Presets: options that were chosen together, under one name that a trainer can hand over."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from nero.core.arguments import whole_number
from nero.core.sphere import Sphere

PresetName: TypeAlias = Literal["paper", "rows", "polar"]


class Preset(NamedTuple):
    """Options of the optimiser; arguments that are given, and options of a param group, win over them."""

    options: Mapping[str, Any]
    by_role: Mapping[str, Mapping[str, Any]]
    """Options of parameters that have a role."""
    of_outputs: Mapping[str, Any] = MappingProxyType({})
    """Options of output layers, where the model can be asked for them."""
    num_steps: int | None = None
    """The length of the runs that its rate suits best; ``None`` if the length does not matter."""

    def rate(self, num_steps: int | None = None) -> float:
        """Return the rate for a run of some length: with the cube root of it, a longer one wants less.

        Example:
            >>> from nero.core.presets import find_preset
            >>> find_preset("polar").rate(4800)
            0.015
        """
        lr: float = self.options["lr"]
        if num_steps is None:
            return lr
        num_steps = whole_number("num_steps", num_steps, smallest=1)
        return lr if self.num_steps is None else lr * (self.num_steps / num_steps) ** (1 / 3)


_LARGE_EMBEDDINGS = {"embedding": {"constraint": Sphere(radius="sqrt_dim")}}

PRESETS: dict[PresetName, Preset] = {
    "paper": Preset({"lr": 0.01, "momentum": 0.0, "direction": "gradient"}, {}),
    "rows": Preset({"lr": 0.03, "momentum": 0.9, "direction": "gradient"}, _LARGE_EMBEDDINGS),
    "polar": Preset(
        {"lr": 0.03, "momentum": 0.9, "direction": "polar"},
        _LARGE_EMBEDDINGS,
        of_outputs={"direction": "gradient"},
        num_steps=600,
    ),
}


def chosen(preset: Preset, **values: Any) -> dict[str, Any]:
    """Return the values of arguments, and those of the preset where they were left out, or ``None``."""
    return {
        name: preset.options[name] if value is None else value for name, value in values.items()
    }


def find_preset(name: str) -> Preset:
    """Return a preset by its name.

    Example:
        >>> from nero.core.presets import find_preset
        >>> find_preset("rows").options
        {'lr': 0.03, 'momentum': 0.9, 'direction': 'gradient'}
    """
    if not isinstance(name, str) or name not in PRESETS:
        raise ValueError(f"preset must be one of {get_args(PresetName)}, not {name!r}")
    return PRESETS[name]
