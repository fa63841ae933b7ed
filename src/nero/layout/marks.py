"""What `annotate` leaves on parameters, so that it is known wherever they go."""

from typing import NamedTuple

from torch import Tensor, nn

from nero.core.neurons import Layout

_NAME = "_nero_mark"


class Mark(NamedTuple):
    """What is known of a parameter without its model."""

    layout: Layout
    is_output: bool
    is_seen: bool
    """Whether a forward pass has shown it."""


def leave_mark(param: Tensor, mark: Mark) -> None:
    """Leave a mark on a parameter; copies and shards of it do not have it."""
    setattr(param, _NAME, mark)


def mark_of(param: Tensor) -> Mark | None:
    """Return the mark that was left on a parameter."""
    return getattr(param, _NAME, None)


def is_marked_output(param: Tensor) -> bool:
    """Whether a parameter was marked as an output layer."""
    return bool(getattr(mark_of(param), "is_output", False))


def is_seen(param: Tensor) -> bool:
    """Whether a forward pass has shown what a parameter was marked with."""
    return bool(getattr(mark_of(param), "is_seen", False))


def forget_marks(model: nn.Module) -> None:
    """Take the marks off all parameters of a model."""
    for param in model.parameters():
        if mark_of(param) is not None:
            delattr(param, _NAME)
