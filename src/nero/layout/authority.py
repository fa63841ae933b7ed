"""Who decides what a parameter is, where modules, a forward pass, `annotate` and overrides all speak.

From the strongest to the weakest:

1. an override of this call, then one that was given to `annotate`: the user's word;
2. modules that tie the parameter;
3. the registered rule of the module that owns it;
4. a forward pass: of this call, else the one that `annotate` watched if modules say what they said then;
5. whatever else `annotate` left on it;
6. a guess.

A forward pass shows two things that rules cannot know, so they do not contradict it: that an embedding is
used as an output layer, too, and that a layer is used as nothing but a table of biases. Overrides come last
in time, because their patterns may name roles: `nero.layout.groups.resolve` applies them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from nero.layout.marks import Mark, mark_of
from nero.layout.named import NamedLayout
from nero.layout.owners import stated_layouts
from nero.layout.reconcile import reconciled


def infer_layouts(model: nn.Module, example: Any = None) -> list[NamedLayout]:
    """Return the layout of every parameter, in the order of ``model.named_parameters()``.

    Where modules tie a parameter, all must agree on the dims; its first owner gives the role, but an
    embedding that is a layer of neurons as well has the role of one.

    Args:
        model: the model; it is only read.
        example: what the model is called with, as in [`observe`][nero.layout.observation.observe]. A
            forward pass on it decides where a module is not registered, and checks where it is.

    Example:
        >>> from nero.layout import infer_layouts
        >>> for found in infer_layouts(nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))):
        ...     print(found.name, found.layout.role)
        0.weight neuron
        0.bias bias
        1.weight gain
        1.bias bias
    """
    return _with_outputs(settled_layouts(model, example))


def settled_layouts(model: nn.Module, example: Any = None) -> list[NamedLayout]:
    """Return the layout of every parameter, before it is asked which layers are outputs of the whole."""
    stated = stated_layouts(model)
    marks = [mark_of(each.param) for each in stated]
    if example is not None:
        shown = reconciled(model, stated, example)
        return [_settled(each, mark) for each, mark in zip(shown, marks, strict=True)]
    watched = [
        mark is not None and mark.is_seen and mark.stated == (each.layout, each.authority)
        for each, mark in zip(stated, marks, strict=True)
    ]
    settled = []
    for each, mark, is_watched in zip(stated, marks, watched, strict=True):
        if mark is not None and is_watched:
            # Which layers no other follows is known only of the whole model that was watched.
            is_end = mark.is_end if all(watched) else None
            each = replace(each, is_end=is_end, is_seen=True)
        settled.append(_settled(each, mark, is_watched=is_watched))
    return settled


def _settled(each: NamedLayout, mark: Mark | None, *, is_watched: bool = False) -> NamedLayout:
    """Return a parameter as the model in hand has it, or as its mark has it where that knows more."""
    if mark is None:
        return each
    is_word = mark.authority == "override"
    is_sight = mark.authority == "observation" and is_watched
    is_more_than_a_guess = each.is_guess and mark.authority != "guess"
    if not (is_word or is_sight or is_more_than_a_guess):
        return each
    is_tied = each.is_tied or (mark.is_tied and (is_watched or not is_word))
    is_new = (mark.layout, is_tied) != (each.layout, each.is_tied)
    return replace(
        each,
        layout=mark.layout,
        is_tied=is_tied,
        reason=f"{each.reason}; annotated" if is_new else each.reason,
        conflict="",
        authority=mark.authority,
    )


def _with_outputs(found: Sequence[NamedLayout]) -> list[NamedLayout]:
    """Say which are output layers.

    They are embeddings that serve as one, and the layers that no other follows in the forward pass. The
    layer of neurons that is registered last is one, too, if no pass was watched, or none that reached it.
    """
    layers = [each for each in found if each.layout.role == "neuron"]
    ends = {each.param for each in layers if each.is_end}
    last = max(layers, key=lambda each: each.registered_at, default=None)
    if last is not None and (not ends or last.is_end is None):
        ends.add(last.param)
    return [replace(each, is_output=each.is_tied or each.param in ends) for each in found]
