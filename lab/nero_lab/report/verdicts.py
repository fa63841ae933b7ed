"""How a claim is tested by records: the rules, apart from the claims themselves.

A difference counts if the ranges over seeds do not overlap. A claim that some optimiser is the best is
*held* if it is better than every other by that rule, *did not hold* if another is better than it by that
rule, and *undecided* otherwise: if ranges overlap, if it leads but a rival was not run, or if the one
that leads had more rates to choose from. With fewer than three seeds of anything that was compared,
*held* and *did not hold* become leanings. Smoke runs are too small to test anything.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from nero_lab.report.formatting import NOTHING, best_in_words
from nero_lab.report.rates import Rate, against, fewest_seeds
from nero_lab.report.runs import Results
from nero_lab.report.style import look

Finding = Literal["held", "did not hold", "undecided", "not shown", "not tested"]
"""What the scores say, taken at face value."""

MARKS = {
    "held": "✔",
    "did not hold": "✘",
    "leans towards held": "↗",
    "leans towards not held": "↘",
    "undecided": "≈",
    "not shown": "?",
    "not tested": NOTHING,
}
"""A sign for each outcome, in the order of the headline."""

MIN_SEEDS = 3
"""Of every score that is compared, for an outcome: fewer show a leaning."""


@dataclass(frozen=True)
class Verdict:
    """What records say of a claim."""

    finding: Finding
    measured: str
    fewest_seeds: int | None = None  # of any score that was compared
    scale: str = NOTHING

    @property
    def outcome(self) -> str:
        """The finding, or a leaning towards it if there were too few seeds.

        Example:
            >>> Verdict("held", "", 3).outcome
            'held'
            >>> Verdict("did not hold", "", 1).outcome
            'leans towards not held'
        """
        if (self.fewest_seeds or 0) >= MIN_SEEDS:
            return self.finding
        leanings = {"held": "leans towards held", "did not hold": "leans towards not held"}
        return leanings.get(self.finding, self.finding)


@dataclass(frozen=True)
class Claim:
    """One statement of the paper.

    Args:
        key: the name under which ``comments.toml`` can say more.
        task: the task that tests it, or "" if several do.
        where: section, figure or table.
        text: the statement.
        test: takes the results of that task, or of all tasks by name if several test it.
        withdrawn: why we no longer say that it held; told until records decide the matter.
    """

    key: str
    task: str
    where: str
    text: str
    test: Callable[[Any], Verdict]
    withdrawn: str = ""

    def verdict(self, results: Mapping[str, Results]) -> Verdict:
        """Test the claim, unless there are only smoke runs, or none."""
        tested = {name: found for name, found in results.items() if found.scale != "smoke"}
        if not self.task:
            return self.test(tested)
        if self.task in tested:
            return replace(self.test(tested[self.task]), scale=tested[self.task].scale)
        if self.task in results:
            return Verdict("not tested", "smoke runs only", scale="smoke")
        return Verdict("not tested", "no runs")


def headline(verdicts: Iterable[Verdict]) -> str:
    """Count the outcomes.

    Example:
        >>> headline([Verdict("held", "", 1), Verdict("held", "", 3)])
        'Of 2 claims: 1 held, 1 leaning towards held.'
    """
    counts = Counter(verdict.outcome for verdict in verdicts)
    told = [f"{counts[outcome]} {outcome}" for outcome in MARKS if counts[outcome]]
    return f"Of {counts.total()} claims: {', '.join(told).replace('leans', 'leaning')}."


def best_of(favourite: str, optimizers: Collection[str]) -> Callable[[Results], Verdict]:
    """Return the test of the claim that one of several optimisers has the best score."""

    def test(results: Results) -> Verdict:
        ran = results.best(optimizers)
        finding = leads(favourite, ran, num_compared=len(optimizers))
        return Verdict(finding, describe(ran, optimizers), fewest_seeds(ran.values()))

    return test


def leads(favourite: str, ran: Mapping[str, Rate], *, num_compared: int) -> Finding:
    """Judge whether one optimiser has the best score of those that ran, each at its best rate."""
    rivals = [rate for name, rate in ran.items() if name != favourite]
    if favourite not in ran or not rivals:
        return "not tested"
    comparisons = {_compared(ran[favourite], rival) for rival in rivals}
    if "worse" in comparisons:
        return "did not hold"
    return "held" if comparisons == {"better"} and len(ran) == num_compared else "undecided"


def _compared(rate: Rate, other: Rate) -> Literal["better", "worse", "overlap"]:
    """Compare two optimisers; the one that had more rates to choose from cannot win by that."""
    found = against(rate, other)
    num_more = rate.num_rates - other.num_rates
    is_unfair = num_more > 0 if found == "better" else num_more < 0
    return "overlap" if is_unfair else found


def describe(ran: Mapping[str, Rate], optimizers: Iterable[str]) -> str:
    """Write scores and their rates in the order of their means, then what was not run."""
    ordered = sorted(ran.values(), key=lambda rate: rate.badness)
    words = [f"{look(rate.optimizer).title} {best_in_words(rate)}" for rate in ordered]
    words += [f"{look(name).title} not run" for name in optimizers if name not in ran]
    return "; ".join(words)
