"""How many ranks there are, and what each axis of them does."""

import math
import re
from dataclasses import asdict, dataclass

from nero.cli.arguments import CommandError

AXES = ("replicate", "fsdp", "tp", "zero", "zero3")
MAX_RANKS = 2**18
"""Larger than any cluster today; the time of a simulation grows with the ranks."""


@dataclass(frozen=True)
class Ranks:
    """The sizes of the axes of a device mesh; an axis of size one does nothing."""

    replicate: int = 1
    """Copies of everything: DDP by itself, HSDP together with ``fsdp``."""
    fsdp: int = 1
    """Ranks among which ``fully_shard`` cuts dim 0 of every parameter."""
    tp: int = 1
    """Ranks among which tensor parallelism cuts the layers that its plan names."""

    zero: int = 1
    """Ranks that cut flattened param groups into equal ranges, as DeepSpeed ZeRO 1 and 2."""
    zero3: int = 1
    """Ranks that cut every flattened parameter into equal ranges, as DeepSpeed ZeRO 3."""

    def __post_init__(self) -> None:
        for axis, size in asdict(self).items():
            if not isinstance(size, int) or size < 1:
                raise CommandError(
                    f"the mesh axis {axis} has size {size!r}; it must be a whole number, at least 1"
                )
        if len(self.cut_axes()) > 1 and (self.zero > 1 or self.zero3 > 1):
            raise CommandError(
                f"{self} mixes ZeRO with another axis: give zero or zero3 a --mesh of its own"
            )
        if self.size > MAX_RANKS:
            raise CommandError(
                f"{self.size:,} ranks are too many to simulate: give at most {MAX_RANKS:,}"
            )

    def __str__(self) -> str:
        return ",".join(f"{a}={n}" for a, n in self.cut_axes().items()) or "fsdp=1"

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return math.prod(asdict(self).values())

    def cut_axes(self) -> dict[str, int]:
        """Return the sizes of the axes that do something, outermost first."""
        return {axis: size for axis, size in asdict(self).items() if size > 1}


def parse_ranks(text: str) -> Ranks:
    """Read a mesh as it is written on the command line.

    Raises:
        CommandError: if ``text`` is not of the form ``replicate=2,fsdp=8,tp=4``, any subset of it.
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\w+)\s*=\s*(\d{1,99})\s*", part)
        if match is None:
            raise CommandError(
                f"{part.strip()!r} in the mesh {text!r} must be of the form AXIS=SIZE, such as fsdp=8"
            )
        axis, size = match.groups()
        if axis not in AXES:
            raise CommandError(f"{axis!r} in the mesh {text!r} must be one of {', '.join(AXES)}")
        if axis in sizes:
            raise CommandError(f"the mesh {text!r} names {axis} twice: give one size for it")
        sizes[axis] = int(size)
    return Ranks(**sizes)
