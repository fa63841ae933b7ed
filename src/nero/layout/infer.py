"""Infer every parameter's layout from modules, a forward pass, `annotate` and overrides.

From the strongest source to the weakest:

1. an override of this call, then one that was given to `annotate`;
2. modules that tie the parameter;
3. the registered rule of the module that owns it;
4. a forward pass: of this call, else the one that `annotate` watched, if modules still state the same;
5. anything else that `annotate` left on it;
6. a guess.

A forward pass also shows two things that rules cannot know and therefore do not contradict: that an
embedding is used as an output layer as well, and that a layer serves as a table of biases only. Overrides
are applied last, by `nero.layout.groups.resolve`, because their patterns may name roles.
"""

from dataclasses import replace
from typing import Any

from torch import nn

from nero.layout.marks import Mark, mark_of
from nero.layout.named import NamedLayout
from nero.layout.outputs import with_outputs
from nero.layout.owners import stated_layouts
from nero.layout.reconcile import reconciled


def infer_layouts(model: nn.Module, example: Any = None) -> list[NamedLayout]:
    """Return the layout of every parameter, in the order of ``model.named_parameters()``.

    Modules that tie a parameter must agree on its dims. Its first owner gives the role, except that an
    embedding that is also a layer of neurons has the role ``"neuron"``.

    Args:
        model: the model; it is only read.
        example: the model's input, as in [`observe`][nero.layout.observation.observe]. A forward pass on it
            decides for modules that are not registered, and checks those that are.

    Example:
        >>> from nero.layout import infer_layouts
        >>> for named in infer_layouts(nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))):
        ...     print(named.name, named.layout.role)
        0.weight neuron
        0.bias bias
        1.weight gain
        1.bias bias
    """
    return with_outputs(settled_layouts(model, example))


def settled_layouts(model: nn.Module, example: Any = None) -> list[NamedLayout]:
    """Return the layout of every parameter, without deciding which are output layers of the whole model."""
    stated = stated_layouts(model)
    marks = [mark_of(named.param) for named in stated]
    if example is not None:
        shown = reconciled(model, stated, example)
        return [_settled(named, mark) for named, mark in zip(shown, marks, strict=True)]
    watched = [
        mark is not None
        and mark.is_seen
        and (mark.stated, mark.stated_by) == (named.layout, named.authority)
        for named, mark in zip(stated, marks, strict=True)
    ]
    settled = []
    for named, mark, is_watched in zip(stated, marks, watched, strict=True):
        if mark is not None and is_watched:
            # The last layers are known only if this is the whole model that was watched.
            is_end = mark.is_end if all(watched) else None
            named = replace(named, is_end=is_end, is_seen=True)
        settled.append(_settled(named, mark, is_watched=is_watched))
    return settled


def _settled(named: NamedLayout, mark: Mark | None, *, is_watched: bool = False) -> NamedLayout:
    """Return a parameter as its model shows it, or as its mark does if that is the stronger source."""
    if mark is None:
        return named
    is_override = mark.authority == "override"
    is_observation = mark.authority == "observation" and is_watched
    is_more_than_a_guess = named.is_guess and mark.authority != "guess"
    if not (is_override or is_observation or is_more_than_a_guess):
        return named
    is_tied = named.is_tied or (mark.is_tied and (is_watched or not is_override))
    is_new = (mark.layout, is_tied) != (named.layout, named.is_tied)
    return replace(
        named,
        layout=mark.layout,
        is_tied=is_tied,
        reason=f"{named.reason}; annotated" if is_new else named.reason,
        conflict="",
        authority=mark.authority,
    )
