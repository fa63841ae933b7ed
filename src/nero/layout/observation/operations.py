"""How each torch operation treats the parameters inside its arguments.

Contracted dims are fan-in, a factor is a gain, a term is a bias, a gathered table is an embedding. A
parameter added to data or concatenated with it is followed to the first contraction or norm, which shows
its vectors; if a softmax comes first, it was a bias of the logits.
"""

import torch

from nero.layout.observation.contractions import CONTRACTIONS
from nero.layout.observation.functions import FUNCTIONS, follow_pointwise
from nero.layout.observation.movements import MOVEMENTS, follow_view
from nero.layout.observation.notes import Call, Handler, Notes

HANDLERS: dict[str, Handler] = {**CONTRACTIONS, **FUNCTIONS, **MOVEMENTS}
"""Handlers by operation name, without the trailing underscore of in-place variants."""


def follow(notes: Notes, call: Call) -> None:
    """Follow the parameters in an operation's arguments into its result."""
    handler = HANDLERS.get(call.name)
    if handler is None and call.func.is_view:
        handler = follow_view
    if handler is None and torch.Tag.pointwise in call.func.tags:
        handler = follow_pointwise
    (handler or _unknown)(notes, call)


def _unknown(notes: Notes, call: Call) -> None:
    for tensor in call.tensors:
        for source in notes.sources(tensor):
            if source.stage == "weight":  # gathered rows already have a sighting
                operation = f"{call.name}, which is not followed"
                notes.see(source, "other", operation, is_weak=True)
    notes.mark(call.out, (), is_data=True)
