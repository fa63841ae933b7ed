"""What each operation of torch does to the parameters inside its inputs.

Contracted dims are fan-in, a factor is a gain, a term is a bias, a gathered table is an embedding. What
is added to data, or stands beside it, is followed to the first contraction or norm, which shows its
vectors; if a softmax comes first, it was a bias of logits.
"""

import torch

from nero.layout.observation import contractions  # noqa: F401  (it fills the table of handlers)
from nero.layout.observation.functions import follow_pointwise
from nero.layout.observation.handlers import HANDLERS
from nero.layout.observation.movements import VIEW_COPIES, follow_view
from nero.layout.observation.observer import Call, Observer


def follow(observer: Observer, call: Call, is_data: bool) -> None:
    """Follow the parameters in the inputs of an operation into its outcome.

    Args:
        observer: what has been seen so far.
        call: the operation.
        is_data: whether any input depends on the example.
    """
    handler = HANDLERS.get(call.name)
    if handler is None and (call.func.is_view or call.name in VIEW_COPIES):
        handler = follow_view
    if handler is None and torch.Tag.pointwise in call.func.tags:
        handler = follow_pointwise
    (handler or _unknown)(observer, call, is_data)


def _unknown(observer: Observer, call: Call, is_data: bool) -> None:
    for tensor in call.tensors:
        for source in observer.sources(tensor):
            if source.stage == "weight":  # of a row that was gathered we know that already
                operation = f"{call.name}, which is not followed"
                observer.see(source, "other", operation, is_weak=True)
    observer.mark(call.out, (), is_data=True)
