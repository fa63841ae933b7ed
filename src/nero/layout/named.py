"""A parameter with its name and its layout, and how messages describe layouts."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from torch import nn

from nero.core.neurons import Layout

Authority: TypeAlias = Literal["override", "tie", "rule", "observation", "guess"]
"""Where a layout comes from: the user's override, modules that share the parameter, a registered class, a
forward pass, or only a name and a shape."""


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
    """Why its owners or uses disagree, if they do; only an override can then decide."""
    authority: Authority = "rule"
    is_doubtful: bool = False
    """Whether it is treated elementwise only because its neurons are unknown."""
    registered_at: int = 0
    """Position of its last owner in registration order."""
    is_tied: bool = False
    """Whether it is an embedding that also serves as an output layer."""
    is_end: bool | None = None
    """Whether no layer follows it in the forward pass; ``None`` if no pass has reached it."""
    is_seen: bool = False
    """Whether a complete forward pass was observed."""
    is_output: bool = False

    @property
    def is_guess(self) -> bool:
        """Whether its layout rests only on its name and shape."""
        return self.authority == "guess"


def in_words(layout: Layout) -> str:
    """Describe a layout for messages."""
    return layout.role if layout.neuron_dims is None else f"neurons along dims {layout.neuron_dims}"


def decide_by_override(name: str) -> str:
    """Return the advice for parameters whose neurons only the user can name."""
    return f'decide with an override, for example overrides=[("{name}", {{"neuron_dims": (0,)}})]'
