"""What `annotate` leaves on parameters, so that it is known wherever they go.

A mark is an attribute made of plain values. It moves with its parameter to another device, and it is
pickled with it, also for ``torch.load(weights_only=True)``. Copies made by ``copy.deepcopy``, and shards,
are new parameters without it. A dictionary with weak references to parameters would not do: torch refuses
to swap tensors that have weak references, which ``module.to()`` does if it is told to.
"""

from typing import Any, NamedTuple

from torch import Tensor, nn

from nero.core.neurons import Layout
from nero.layout.named import Authority, NamedLayout

_NAME = "_nero_mark"
_BY = "stated_by"


class Mark(NamedTuple):
    """What was known of a parameter when its model was annotated."""

    layout: Layout
    authority: Authority
    stated: tuple[Layout, Authority]
    """What modules alone said of it then."""
    is_tied: bool
    is_end: bool | None
    is_seen: bool
    is_output: bool
    is_alone: bool
    """Whether its model had no layer of neurons at all."""


def leave_mark(param: Tensor, mark: Mark) -> None:
    """Leave a mark on a parameter; copies and shards of it do not have it."""
    layout, by = mark.stated
    plain = {**mark._asdict(), "layout": mark.layout.as_options(), "stated": layout.as_options()}
    setattr(param, _NAME, {**plain, _BY: by})


def mark_of(param: Tensor) -> Mark | None:
    """Return the mark that was left on a parameter, unless another version of this library left it."""
    plain: dict[str, Any] = getattr(param, _NAME, {})
    if plain.keys() != {*Mark._fields, _BY}:
        return None
    fields = {key: value for key, value in plain.items() if key != _BY}
    stated = Layout(**plain["stated"]), plain[_BY]
    return Mark(**{**fields, "layout": Layout(**plain["layout"]), "stated": stated})


def new_mark(found: NamedLayout, stated: NamedLayout, *, is_alone: bool) -> Mark:
    """Return the mark for a parameter of which modules state one thing, and of which more may be known."""
    return Mark(
        found.layout,
        found.authority,
        (stated.layout, stated.authority),
        found.is_tied,
        found.is_end,
        found.is_seen,
        found.is_output,
        is_alone,
    )


def forget_marks(model: nn.Module) -> None:
    """Take the marks off all parameters of a model."""
    for param in nn.Module.parameters(model):
        if hasattr(param, _NAME):
            delattr(param, _NAME)
