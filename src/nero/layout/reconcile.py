"""Combine registered and guessed layouts with those seen in a forward pass, which beat guesses."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from nero.core.neurons import BIAS, LayoutWarning
from nero.core.warn import warn_user
from nero.layout.named import NamedLayout, decide_by_override, in_words
from nero.layout.observation import Observation, observe
from nero.layout.observation.sightings import Seen, same_neurons
from nero.layout.outputs import as_output, use_as_output, with_end


def reconciled(model: nn.Module, stated: Sequence[NamedLayout], example: Any) -> list[NamedLayout]:
    """Observe one forward pass, and replace guesses with the layouts it shows.

    Registered layouts stay, with a warning if the pass contradicts them. There are two exceptions: a layer
    that serves only as a table of biases, and an embedding that also multiplies data, which is an output
    layer as if modules had tied it to one.
    """
    observation = observe(model, example)
    if observation.error:
        _warn_of_failure(stated, observation)
    is_complete = not observation.error
    settled = [_settled(named, observation.seen.get(named.name), is_complete) for named in stated]
    contradicted = [(named, seen) for named, seen in settled if seen is not None]
    if contradicted:
        first, seen = contradicted[0]
        warn_user(
            f"`{first.name}` is registered as {in_words(first.layout)} ({first.reason}), but the example "
            f"uses it as {in_words(seen.layouts[0])}, in {seen.how}; the registered layout is used for "
            f"{len(contradicted)} such parameter(s): decide with register_layout or an override",
            LayoutWarning,
        )
    return [replace(named, is_seen=is_complete) for named, _ in settled]


def _settled(
    named: NamedLayout, seen: Seen | None, is_complete: bool
) -> tuple[NamedLayout, Seen | None]:
    """Return the parameter with its final layout, and its uses if they contradict that layout."""
    if seen is None or not seen.layouts:
        how = "the example does not reach it" if seen is None else f"not followed beyond {seen.how}"
        return (replace(named, reason=f"{named.reason}; {how}") if named.is_guess else named), None
    layout, use = seen.layouts[0], ""
    if is_complete:
        named, use = with_end(named, seen), use_as_output(named, seen)
    if named.is_guess:
        if len(seen.layouts) > 1:
            uses = " and as ".join(map(in_words, seen.layouts))
            advice = decide_by_override(named.name)
            conflict = f"the example uses `{named.name}` as {uses}; {advice}"
            return replace(named, conflict=conflict), None
        if named.layout == BIAS and layout.role == "embedding":
            # Only the name shows that these looked-up vectors are biases.
            return replace(named, authority="observation"), None
        reason = f"seen in {seen.how}"
        named = replace(named, layout=layout, reason=reason, authority="observation")
        return as_output(named, use), None
    if any(same_neurons(named.layout, other, named.param.shape) for other in seen.layouts):
        return as_output(named, use), None
    if seen.layouts == (BIAS,) and named.layout.role in ("embedding", "neuron"):
        reason = f"{named.reason}, seen in {seen.how} only"
        return replace(named, layout=BIAS, reason=reason, authority="observation"), None
    return named, seen


def _warn_of_failure(stated: Sequence[NamedLayout], observation: Observation) -> None:
    unseen = [
        named.name for named in stated if named.is_guess and named.name not in observation.seen
    ]
    consequence = (
        f"{len(unseen)} parameter(s), first `{unseen[0]}`, are guessed"
        if unseen
        else "no layout is guessed, but the rest of the pass was not seen"
    )
    warn_user(
        f"the forward pass on the example stopped early ({observation.error}); {consequence}: "
        "pass the model's real input, or a function that calls the model on it",
        LayoutWarning,
    )
