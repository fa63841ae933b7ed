"""Find out which parameters a flat buffer contains."""

from collections.abc import Sequence

from torch import Tensor

from nero.distributed.flat.holder import FlatRange, Member
from nero.distributed.flat.originals import Engine, Original
from nero.distributed.flat.plan import agree
from nero.distributed.flat.zero import zero
from nero.distributed.flat.zero3 import zero3

ENGINES: tuple[Engine, ...] = (zero3, zero)
"""Engines that take over an optimizer built on whole parameters."""


def trace(
    vector: Tensor, originals: Sequence[Original], *, has_values: bool = True
) -> FlatRange | None:
    """Return a `FlatRange` for a flat buffer, or ``None`` if no supported engine made it.

    All ranks of the buffer's process group must call this.

    Args:
        vector: a param group's flat buffer, which replaced its parameters.
        originals: these parameters.
        has_values: whether buffer and parameters should have equal values, which are then compared.
    """
    for engine in ENGINES:
        found = engine(vector, originals)
        if found is not None:
            ranges = found.ranges if has_values else found.ranges._replace(problem="")
            (plan,) = agree([ranges], found.group)
            pairs = zip(found.ranges.pieces, found.originals, strict=True)
            members = [Member(piece, original.state, {}) for piece, original in pairs]
            return FlatRange(vector, members, plan)
    return None
