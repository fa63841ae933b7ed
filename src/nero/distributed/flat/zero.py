"""DeepSpeed ZeRO-1, ZeRO-2 and BF16_Optimizer: one range of a param group per rank.

DeepSpeed links every parameter to its part of the buffer; ``safe_get_full_fp32_param`` in
``deepspeed.utils`` reads the same links.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from nero.distributed.flat.originals import Found, Original
from nero.distributed.flat.plan import Ranges
from nero.distributed.flat.values import problem_of


def zero(flat: Tensor, originals: Sequence[Original]) -> Found | None:
    """Find the parameter pieces in a ZeRO-1, ZeRO-2 or BF16_Optimizer buffer."""
    params: list[Any] = [original.param for original in originals]
    trained = [(o, p) for o, p in zip(originals, params, strict=True) if hasattr(p, "_hp_mapping")]
    if not trained:
        return None
    pieces, problem = [], ""
    for original, param in trained:
        link = param._hp_mapping
        if link is None:  # no part of it is on this rank
            pieces.append(original.piece())
            continue
        start, num = link.lp_fragment_address.start, link.lp_fragment_address.numel
        piece = original.piece(link.hp_fragment_address.start, start, start + num)
        problem = problem or problem_of(
            piece, flat, param.detach().reshape(-1)[start : start + num]
        )
        pieces.append(piece)
    return Found(
        [original for original, _ in trained], Ranges(pieces, problem), trained[0][1]._dp_group
    )
