"""The score of one optimiser at one rate, over seeds, and when one score is better than another.

A score is the value of the task's metric after the last epoch, as in the paper; a run that diverged has
none and counts as worse than any other.
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Comparison = Literal["better", "worse", "overlap"]


@dataclass(frozen=True)
class Score:
    """Mean and range over seeds of the last value of a metric."""

    values: tuple[float, ...]  # of the runs that came to their end
    num_lost: int = 0  # runs that diverged
    higher_is_better: bool = False

    @property
    def num_seeds(self) -> int:
        """Runs, whether they came to their end or not."""
        return len(self.values) + self.num_lost

    @property
    def worst_possible(self) -> float:
        """The score of a run that was lost."""
        return -math.inf if self.higher_is_better else math.inf

    @property
    def all_values(self) -> tuple[float, ...]:
        """One value a seed."""
        return self.values + (self.worst_possible,) * self.num_lost

    @property
    def mean(self) -> float:
        """Mean over seeds; infinitely bad if one was lost."""
        return self.worst_possible if self.num_lost else statistics.fmean(self.values)

    @property
    def low(self) -> float:
        """Lowest value."""
        return min(self.all_values)

    @property
    def high(self) -> float:
        """Highest value."""
        return max(self.all_values)

    @property
    def badness(self) -> float:
        """The mean, turned so that lower is better."""
        return -self.mean if self.higher_is_better else self.mean

    @property
    def rank(self) -> tuple[int, float]:
        """What rates are chosen by, lowest first: runs lost, then how bad the others are."""
        kept = Score(self.values, higher_is_better=self.higher_is_better)
        return self.num_lost, kept.badness if self.values else math.inf

    def against(self, other: "Score") -> Comparison:
        """Compare: a difference counts if the ranges over seeds do not overlap.

        A run that was lost is worse than any that was not, so a score with lost runs is worse than one
        without, however good its other seeds are.

        Example:
            >>> Score((1.0, 2.0)).against(Score((3.0, 4.0)))
            'better'
            >>> Score((1.0, 2.0), num_lost=1).against(Score((3.0, 4.0)))
            'worse'
        """
        if bool(self.num_lost) != bool(other.num_lost):
            return "worse" if self.num_lost else "better"
        if self.low <= other.high and other.low <= self.high:
            return "overlap"
        return "better" if self.badness < other.badness else "worse"


def fewest_seeds(scores: Iterable[Score | None]) -> int | None:
    """Return the smallest number of seeds of any score; None stands for what was not run."""
    return min((score.num_seeds for score in scores if score), default=None)
