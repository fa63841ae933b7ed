"""Ask engines what a flat vector holds."""

from collections.abc import Sequence

from torch import Tensor

from nero.distributed.flat.holder import FlatRange, Member
from nero.distributed.flat.originals import Engine, Original
from nero.distributed.flat.plan import agree
from nero.distributed.flat.zero import zero
from nero.distributed.flat.zero3 import zero3

ENGINES: tuple[Engine, ...] = (zero3, zero)
"""Those that take over an optimizer built on whole parameters."""


def trace(
    vector: Tensor, originals: Sequence[Original], *, has_values: bool = True
) -> FlatRange | None:
    """Return the holder of a flat vector, or ``None`` if no engine that we know has made it.

    All ranks of the vector's process group call this.

    Args:
        vector: a param group's flat vector, which replaced its parameters.
        originals: these parameters.
        has_values: whether both have the same values, to be compared.
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
