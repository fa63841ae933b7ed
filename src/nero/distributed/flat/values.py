"""Check a buffer's contents against the engine's own map."""

import torch
from torch import Tensor

from nero.distributed.flat.boxes import Piece


def problem_of(piece: Piece, flat: Tensor, values: Tensor) -> str:
    """Return an error message if the buffer's values are not the parameter's, else an empty string.

    Args:
        piece: what the engine says this rank holds.
        flat: the buffer.
        values: the same elements of the parameter itself, maybe in a lower precision.
    """
    held = flat.detach()[piece.offset : piece.offset + piece.stop - piece.start]
    if held.shape == values.shape:
        held = held.to(values.device, values.dtype)
        if torch.equal(held, values) or torch.equal(held.nan_to_num(), values.nan_to_num()):
            return ""
    return (
        f"{piece.name} is not where DeepSpeed's own map places it in its flat buffer. Set "
        "round_robin_gradients to false, because true makes the map wrong; pass an optimizer to "
        "deepspeed.initialize only once; load weights before that call, or with engine.load_checkpoint"
    )
