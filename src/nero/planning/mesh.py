"""How many ranks there are, and what each axis of them does."""

import re
from dataclasses import dataclass

AXES = ("replicate", "fsdp", "tp")


@dataclass(frozen=True)
class Ranks:
    """The sizes of the axes of a device mesh; an axis of size one does nothing.

    Example:
        >>> from nero.planning import Ranks
        >>> Ranks(replicate=16, fsdp=128, tp=8).size
        16384
    """

    replicate: int = 1
    """Copies of everything: DDP by itself, HSDP together with ``fsdp``."""
    fsdp: int = 1
    """Ranks among which ``fully_shard`` cuts dim 0 of every parameter."""
    tp: int = 1
    """Ranks among which tensor parallelism cuts the layers that its plan names."""

    def __post_init__(self) -> None:
        for axis, size in self.sizes().items():
            if size < 1:
                raise ValueError(f"the mesh axis {axis} has size {size}; it must be at least 1")

    def __str__(self) -> str:
        return ",".join(f"{a}={n}" for a, n in self.sizes().items() if n > 1) or "fsdp=1"

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.replicate * self.fsdp * self.tp

    def sizes(self) -> dict[str, int]:
        """Return the size of each axis, outermost first."""
        return {axis: getattr(self, axis) for axis in AXES}


def parse_ranks(text: str) -> Ranks:
    """Read a mesh as it is written on the command line.

    Raises:
        ValueError: if ``text`` is not of the form ``replicate=2,fsdp=8,tp=4``, any subset of it.

    Example:
        >>> from nero.planning import parse_ranks
        >>> parse_ranks("fsdp=128,tp=8")
        Ranks(replicate=1, fsdp=128, tp=8)
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\w+)\s*=\s*(\d+)\s*", part)
        if match is None:
            raise ValueError(
                f"{part.strip()!r} in the mesh {text!r} is not of the form AXIS=SIZE, such as fsdp=8"
            )
        axis, size = match.groups()
        if axis not in AXES:
            raise ValueError(f"{axis!r} in the mesh {text!r} is none of {', '.join(AXES)}")
        if axis in sizes:
            raise ValueError(f"the mesh {text!r} names {axis} twice")
        sizes[axis] = int(size)
    return Ranks(**sizes)
