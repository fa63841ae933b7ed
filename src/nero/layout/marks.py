"""Marks that `annotate` leaves on parameters, for optimizers that see only the parameters.

A mark is an attribute made of plain values. It moves with its parameter to another device, and is pickled
with it, even for ``torch.load(weights_only=True)``. Copies made by ``copy.deepcopy``, and shards, are new
parameters without it. A dictionary with weak references to parameters would not work: torch refuses to
swap tensors that have weak references, and ``module.to()`` may be configured to swap.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor, nn

from nero.core.neurons import Layout
from nero.layout.named import Authority, NamedLayout

_NAME = "_nero_mark"


class Mark(NamedTuple):
    """The layout of a parameter when its model was annotated."""

    layout: Layout
    authority: Authority
    stated: Layout
    """The layout stated by its modules at that time."""
    stated_by: Authority
    is_tied: bool
    is_end: bool | None
    is_seen: bool
    is_output: bool
    is_alone: bool
    """Whether its model had no layer with neurons."""


def leave_mark(param: Tensor, mark: Mark) -> None:
    """Leave a mark on a parameter; copies and shards do not inherit it."""
    layouts = {"layout": mark.layout.as_options(), "stated": mark.stated.as_options()}
    setattr(param, _NAME, {**mark._asdict(), **layouts})


def mark_of(param: Tensor) -> Mark | None:
    """Return a parameter's mark, unless another version of this library left it."""
    plain: dict[str, Any] = getattr(param, _NAME, {})
    if plain.keys() != {*Mark._fields}:
        return None
    return Mark(**{**plain, **{key: Layout(**plain[key]) for key in ("layout", "stated")}})


def new_mark(named: NamedLayout, stated: NamedLayout, *, is_alone: bool) -> Mark:
    """Make a parameter's mark from its final layout and the one stated by its modules."""
    layouts = (named.layout, named.authority, stated.layout, stated.authority)
    return Mark(*layouts, named.is_tied, named.is_end, named.is_seen, named.is_output, is_alone)


def forget_marks(model: nn.Module) -> None:
    """Remove the marks from all parameters of a model."""
    for param in nn.Module.parameters(model):
        if hasattr(param, _NAME):
            delattr(param, _NAME)


@contextmanager
def without_marks(model: nn.Module) -> Iterator[None]:
    """Take the marks off a model for as long as the context lasts, to infer its layouts from scratch."""
    marked = {p: getattr(p, _NAME) for p in nn.Module.parameters(model) if hasattr(p, _NAME)}
    forget_marks(model)
    try:
        yield
    finally:
        for param, mark in marked.items():
            setattr(param, _NAME, mark)
