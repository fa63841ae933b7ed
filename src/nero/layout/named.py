"""A parameter with its name and its layout, and the words that messages use for layouts."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from torch import nn

from nero.core.neurons import Layout

Authority: TypeAlias = Literal["override", "tie", "rule", "observation", "guess"]
"""The basis of a layout: the user's override, modules that share the parameter, a registered class, a
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
    """Why its owners or its uses disagree; only an override can decide then."""
    authority: Authority = "rule"
    is_doubtful: bool = False
    """Whether its elements stand alone only because its neurons are not known."""
    registered_at: int = 0
    """Position of its last owner's parameter in registration order."""
    is_tied: bool = False
    """Whether it is an embedding that serves as an output layer as well, wherever it is registered."""
    is_end: bool | None = None
    """Whether no layer follows it in the forward pass; ``None`` if no pass has reached it."""
    is_seen: bool = False
    """Whether a complete forward pass was watched."""
    is_output: bool = False
    """Whether it is an output layer."""

    @property
    def is_guess(self) -> bool:
        """Whether its layout rests on its name and its shape only."""
        return self.authority == "guess"


def in_words(layout: Layout) -> str:
    """Return a layout as messages write it."""
    return layout.role if layout.neuron_dims is None else f"neurons along dims {layout.neuron_dims}"


def decide_by_override(name: str) -> str:
    """Return the advice that ends a message where only the user can name a parameter's neurons."""
    return f'decide with an override, for example overrides=[("{name}", {{"neuron_dims": (0,)}})]'
