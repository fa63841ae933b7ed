"""Check that a buffer holds what the engine's map says."""

import torch
from torch import Tensor

from nero.distributed.flat.boxes import Piece


def problem_of(piece: Piece, flat: Tensor, values: Tensor) -> str:
    """Return why a buffer cannot hold this piece: its values are not the parameter's; else nothing.

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
        f"DeepSpeed's flat buffer does not hold {piece.name} where DeepSpeed's own map says. Set "
        "round_robin_gradients to false, which breaks the map; pass an optimizer to deepspeed.initialize "
        "only once; and load weights before it, or with engine.load_checkpoint"
    )
