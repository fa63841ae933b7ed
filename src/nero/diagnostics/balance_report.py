"""What `check_balance` found."""

from dataclasses import dataclass

from nero.diagnostics.number import number
from nero.tables import aligned

COLUMNS = ("layer", "neurons", "off", "off mean", "off norm", "constraint", "which")
_MAX_SHOWN = 4


@dataclass(frozen=True)
class BalanceRow:
    """The neurons of one parameter."""

    name: str
    num_neurons: int
    constraint: str
    mean_drift: float | None
    """Of the least centred neuron: |sum of w| / sqrt(fan-in) / |w|; ``None`` if its mean is free."""
    norm_drift: float | None
    """Of the neuron whose norm is off most, relative to what it should be; ``None`` if norms are free."""
    tolerance: float
    """Drifts up to here are rounding; the table shows them as 0."""
    unbalanced: tuple[int, ...]
    """Which neurons are off: their positions, counted along the dims that index neurons."""
    without_direction: tuple[int, ...]
    """Those among them that are zero, or constant where the mean must be zero. No projection can balance
    them; Nero gives them a direction at their first gradient."""

    def cells(self) -> tuple[str, ...]:
        """Return the row as text, one cell per column."""
        shown = ", ".join(map(str, self.unbalanced[:_MAX_SHOWN]))
        more = len(self.unbalanced) - _MAX_SHOWN
        which = f"{shown} and {more:,} more" if more > 0 else shown or "-"
        if self.without_direction:
            which += f"; {len(self.without_direction):,} without direction"
        return (
            self.name,
            f"{self.num_neurons:,}",
            f"{len(self.unbalanced):,}",
            number(self.mean_drift, tolerance=self.tolerance),
            number(self.norm_drift, tolerance=self.tolerance),
            self.constraint,
            which,
        )


@dataclass(frozen=True)
class BalanceReport:
    """What [`check_balance`][nero.diagnostics.check_balance] returns: print it, or ask `is_balanced`."""

    rows: tuple[BalanceRow, ...]
    explain: bool = True
    """Whether it prints as a table, or as one line."""

    @property
    def is_balanced(self) -> bool:
        """Whether every neuron obeys its constraint, as well as its dtype can express."""
        return not any(row.unbalanced for row in self.rows)

    def summary(self) -> str:
        """Return one line that says whether, and if not how many neurons are off."""
        total = sum(row.num_neurons for row in self.rows)
        off = sum(len(row.unbalanced) for row in self.rows)
        if not total:
            return "no neurons to balance"
        if self.is_balanced:
            return f"balanced: all {total:,} neurons"
        return f"not balanced: {off:,} of {total:,} neurons are off"

    def __bool__(self) -> bool:
        return self.is_balanced

    def __str__(self) -> str:
        if not self.explain or not self.rows:
            return self.summary()
        table = aligned([COLUMNS, *(row.cells() for row in self.rows)], left=(0, 5, 6))
        return f"{table}\n\n{self.summary()}"
