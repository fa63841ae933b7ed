"""Bring together what is registered, what was seen and what was guessed; seeing beats guessing."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from nero.core.neurons import BIAS, EMBEDDING, Layout, LayoutWarning
from nero.core.warn import warn_user
from nero.layout.named import NamedLayout, decide_by_override, in_words
from nero.layout.observation import Observation, observe
from nero.layout.observation.sightings import Seen


def reconciled(model: nn.Module, found: Sequence[NamedLayout], example: Any) -> list[NamedLayout]:
    """Watch one forward pass, and correct guesses by what it shows.

    A registered layout stays as it is: the example only checks it, with a warning where it contradicts. The
    exceptions are a layer that is used as nothing but a table of biases, and an embedding that data is
    multiplied with, too: that is an output layer, as if modules had tied it to one.
    """
    observation = observe(model, example)
    if observation.error:
        _warn_of_failure(found, observation)
    is_whole = not observation.error
    settled = [_settled(each, observation.seen.get(each.name), is_whole) for each in found]
    doubts = [each for each, seen in settled if seen is not None]
    if doubts:
        first, seen = next((each, seen) for each, seen in settled if seen is not None)
        warn_user(
            f"`{first.name}` is registered as {in_words(first.layout)} ({first.reason}), but the example "
            f"uses it as {in_words(seen.layouts[0])}, in {seen.how}; the registered layout is taken for "
            f"{len(doubts)} such parameter(s): decide with register_layout or an override",
            LayoutWarning,
        )
    return [replace(each, is_seen=is_whole) for each, _ in settled]


def _settled(
    each: NamedLayout, seen: Seen | None, is_whole: bool
) -> tuple[NamedLayout, Seen | None]:
    """Return the layout that is taken, and what was seen if that contradicts it."""
    if seen is None or not seen.layouts:
        how = "the example does not reach it" if seen is None else f"not followed beyond {seen.how}"
        return (replace(each, reason=f"{each.reason}; {how}") if each.is_guess else each), None
    layout = seen.layouts[0]
    if is_whole and (seen.is_layer or seen.ends):
        each = replace(each, is_end=bool(seen.ends))
    is_table = is_whole and (seen.is_looked_up or each.layout.role == "embedding")
    use = _use_as_output(seen, each.param.shape) if is_table and not each.is_tied else ""
    if each.is_guess:
        if len(seen.layouts) > 1:
            uses = " and as ".join(map(in_words, seen.layouts))
            conflict = f"the example uses `{each.name}` as {uses}; {decide_by_override(each.name)}"
            return replace(each, conflict=conflict), None
        if each.layout == BIAS and layout.role == "embedding":
            return replace(
                each, authority="observation"
            ), None  # a name is all that tells of biases
        reason = f"seen in {seen.how}"
        known = replace(each, layout=layout, reason=reason, authority="observation")
        return (_as_output(known, use) if use else known), None
    if any(same_neurons(each.layout, other, each.param.shape) for other in seen.layouts):
        return (_as_output(each, use) if use else each), None
    if seen.layouts == (BIAS,) and each.layout.role in ("embedding", "neuron"):
        reason = f"{each.reason}, seen in {seen.how} only"
        return replace(each, layout=BIAS, reason=reason, authority="observation"), None
    return each, seen


def _use_as_output(seen: Seen, shape: Sequence[int]) -> str:
    """Return how a table serves as an output layer, too; nothing if it does not."""
    if any(same_neurons(EMBEDDING, end, shape) for end in seen.ends):
        return "the last layer, too"
    if seen.is_scored:
        return "a layer of logits, too"
    return "multiplied with rows of a table" if seen.meets_rows else ""


def _as_output(each: NamedLayout, use: str) -> NamedLayout:
    """Return an embedding as the output layer that it is, too."""
    return replace(
        each,
        layout=replace(each.layout, role="neuron"),
        is_tied=True,
        authority="observation",
        reason=f"{each.reason}; {use}",
    )


def same_neurons(layout: Layout, other: Layout, shape: Sequence[int]) -> bool:
    """Whether two layouts cut a parameter of this shape into the same neurons.

    Example:
        >>> from nero.layout import EMBEDDING, neurons
        >>> from nero.layout.reconcile import same_neurons
        >>> same_neurons(EMBEDDING, neurons(0, 1), (5, 1, 4))
        True
    """
    return _cut(layout, shape) == _cut(other, shape)


def _cut(layout: Layout, shape: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return the dims that are fan-in and longer than one, and into how many parts dim 0 is cut."""
    neurons = layout.at(shape)
    if neurons.is_elementwise:
        return (), 1
    kept = {d % len(shape) for d in layout.neuron_dims or ()}
    return tuple(d for d, n in enumerate(shape) if n > 1 and d not in kept), neurons.num_groups


def _warn_of_failure(found: Sequence[NamedLayout], observation: Observation) -> None:
    blind = [each.name for each in found if each.is_guess and each.name not in observation.seen]
    what = (
        f"{len(blind)} parameter(s), first `{blind[0]}`, are guessed"
        if blind
        else "no layout is guessed, but what comes later in it was not seen"
    )
    warn_user(
        f"the forward pass on the example stopped early ({observation.error}); {what}: "
        "pass what the model is called with",
        LayoutWarning,
    )
