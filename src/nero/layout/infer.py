"""Infer every parameter's layout from modules, a forward pass, `annotate` and overrides.

From the strongest source to the weakest:

1. an override in this call, then one given to `annotate`;
2. modules that tie the parameter;
3. the registered rule of the module that owns it;
4. a forward pass: in this call, else the one `annotate` observed, if modules still state the same layouts;
5. any other layout stored by `annotate`;
6. a guess.

A forward pass also shows two things that rules cannot know: that an embedding is also used as an output
layer, and that a layer serves only as a table of biases. Overrides are applied last, by
`nero.layout.groups.resolve`, because their patterns may name roles.
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

    Modules that tie a parameter must agree on its dims. Its first owner decides the role, except that an
    embedding tied to a layer with neurons has the role ``"neuron"``.

    Args:
        model: the model; it is not changed.
        example: the model's input, as in [`observe`][nero.layout.observation.observe]. A forward pass on it
            decides the layouts of unregistered modules, and checks those of registered ones.

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
    """Return the layout of every parameter, without deciding which are output layers."""
    stated = stated_layouts(model)
    marks = [mark_of(named.param) for named in stated]
    if example is not None:
        shown = reconciled(model, stated, example)
        return [_settled(named, mark) for named, mark in zip(shown, marks, strict=True)]
    observed = [
        mark is not None
        and mark.is_seen
        and (mark.stated, mark.stated_by) == (named.layout, named.authority)
        for named, mark in zip(stated, marks, strict=True)
    ]
    settled = []
    for named, mark, is_observed in zip(stated, marks, observed, strict=True):
        if mark is not None and is_observed:
            # The pass shows the last layers only if it ran the whole of this model.
            is_end = mark.is_end if all(observed) else None
            named = replace(named, is_end=is_end, is_seen=True)
        settled.append(_settled(named, mark, is_observed=is_observed))
    return settled


def _settled(named: NamedLayout, mark: Mark | None, *, is_observed: bool = False) -> NamedLayout:
    """Return the stated layout, or that of the mark if it is the stronger source."""
    if mark is None:
        return named
    is_override = mark.authority == "override"
    is_observation = mark.authority == "observation" and is_observed
    is_more_than_a_guess = named.is_guess and mark.authority != "guess"
    if not (is_override or is_observation or is_more_than_a_guess):
        return named
    is_tied = named.is_tied or (mark.is_tied and (is_observed or not is_override))
    is_new = (mark.layout, is_tied) != (named.layout, named.is_tied)
    return replace(
        named,
        layout=mark.layout,
        is_tied=is_tied,
        reason=f"{named.reason}; annotated" if is_new else named.reason,
        conflict="",
        authority=mark.authority,
    )
