"""How records test a claim: the rules, without the claims themselves.

`differences` decides whether a difference counts. A claim that an optimizer is the best is *held* if it
is better than every other, and *did not hold* if another is better. It is *undecided* if a comparison
was inconclusive, a rival did not run, or the leader had more learning rates to choose from.
With several rivals, or several looks at a growing number of seeds, one is more likely to seem better by
chance, so their intervals are wider, and no more than one claim in twenty fails wrongly. With fewer than
three shared seeds, *held* and *did not hold* become *likely* and *doubtful*. Smoke runs are too small to
test anything. The protocol's runs are short, so they decide only where larger runs have too few seeds, test
nothing or are inconclusive, and not if they contradict them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from nero_lab.report.differences import CONFIDENCE, MIN_SEEDS, Comparison, against, shared_seeds
from nero_lab.report.formatting import NOTHING, best_in_words
from nero_lab.report.rates import Rate
from nero_lab.report.runs import PROTOCOL_SCALE, Results
from nero_lab.report.style import look

Finding = Literal["held", "did not hold", "undecided", "not shown", "not tested"]
"""The result of the scores at face value."""

MARKS = {
    "held": "✔",
    "did not hold": "✘",
    "likely": "↗",
    "doubtful": "↘",
    "undecided": "≈",
    "not shown": "?",
    "not tested": NOTHING,
}
"""The outcomes' signs, in the order of the headline."""


@dataclass(frozen=True)
class Verdict:
    """What the records say about a claim."""

    finding: Finding
    measured: str
    num_seeds: int = 0  # shared by all the scores that were compared
    scale: str = NOTHING
    remark: str = ""  # what other runs say
    pairs: Sequence[tuple[Rate, Rate]] = ()  # the claim's favourite with each rival

    @property
    def outcome(self) -> str:
        """The finding, or a weaker form of it if there were too few seeds.

        Example:
            >>> Verdict("held", "", 3).outcome
            'held'
            >>> Verdict("did not hold", "", 1).outcome
            'doubtful'
        """
        if self.num_seeds >= MIN_SEEDS:
            return self.finding
        weaker = {"held": "likely", "did not hold": "doubtful"}
        return weaker.get(self.finding, self.finding)


@dataclass(frozen=True)
class Claim:
    """One of the paper's claims.

    Args:
        key: its name in ``comments.toml``.
        task: the task that tests it, or "" if several do.
        where: section, figure or table.
        text: the claim.
        test: takes the results of that task, or of all tasks by name if several test it.
        title: a short form of the claim, for a picture.
    """

    key: str
    task: str
    where: str
    text: str
    test: Callable[[Any], Verdict]
    title: str

    def verdict(
        self, results: Mapping[str, Results], protocol: Mapping[str, Results] = MappingProxyType({})
    ) -> Verdict:
        """Test the claim on ``results``, or on the protocol's runs if those know better.

        They do if the others test nothing, or have no more rivals and either too few seeds or no clear
        result. If the two contradict each other, the claim is undecided.
        """
        is_own = {name: found.scale == PROTOCOL_SCALE for name, found in results.items()}
        larger = self._tested_on(
            {n: found for n, found in results.items() if not is_own[n] or n not in protocol}
        )
        own = self._tested_on(protocol)
        if own.finding == "not tested":
            return larger
        if larger.finding == "not tested":
            return own
        if own.num_seeds < MIN_SEEDS or len(own.pairs) < len(larger.pairs):
            return larger
        is_clear = larger.finding != "undecided" or own.finding == "undecided"
        if larger.num_seeds >= MIN_SEEDS and is_clear:
            return larger
        if {larger.finding, own.finding} == {"held", "did not hold"}:
            remark = (
                f"At {larger.scale} scale, it would be {larger.outcome} ({larger.measured}), so the "
                "claim is undecided"
            )
            return replace(own, finding="undecided", remark=remark)
        return own

    def _tested_on(self, results: Mapping[str, Results]) -> Verdict:
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
        'Of 2 claims: 1 held, 1 likely.'
    """
    counts = Counter(verdict.outcome for verdict in verdicts)
    told = [f"{counts[outcome]} {outcome}" for outcome in MARKS if counts[outcome]]
    return f"Of {counts.total()} claims: {', '.join(told)}."


def best_of(
    favourite: str, optimizers: Collection[str], *, num_looks: int = 1
) -> Callable[[Results], Verdict]:
    """Return the test of the claim that one of several optimizers has the best score.

    Args:
        favourite: the one that the claim is about.
        optimizers: all of them.
        num_looks: how often seeds were added because the result was not clear, plus one.
    """

    def test(results: Results) -> Verdict:
        ran = results.best(optimizers)
        finding = leads(favourite, ran, num_compared=len(optimizers), num_looks=num_looks)
        measured, num_seeds = describe(ran, optimizers), shared_seeds(ran.values())
        return Verdict(finding, measured, num_seeds, pairs=pairs_of(favourite, ran))

    return test


def pairs_of(favourite: str, ran: Mapping[str, Rate]) -> list[tuple[Rate, Rate]]:
    """Return the favourite with each of its rivals, if it ran."""
    rivals = [rate for name, rate in ran.items() if name != favourite]
    return [(ran[favourite], rival) for rival in rivals] if favourite in ran else []


def leads(
    favourite: str, ran: Mapping[str, Rate], *, num_compared: int, num_looks: int = 1
) -> Finding:
    """Judge whether an optimizer has the best score of those that ran, each at its best learning rate."""
    pairs = pairs_of(favourite, ran)
    if not pairs:
        return "not tested"
    found = [
        (_compared(mine, rival, num_looks), _compared(rival, mine, num_looks * len(pairs)))
        for mine, rival in pairs
    ]
    if any(rival == "better" for _, rival in found):
        return "did not hold"
    is_best = all(mine == "better" for mine, _ in found)
    return "held" if is_best and len(ran) == num_compared else "undecided"


def _compared(rate: Rate, other: Rate, num_chances: int) -> Comparison:
    """Compare two optimizers; the first cannot win if it had more learning rates to choose from.

    Args:
        rate: the one that may be better.
        other: the one that may be worse.
        num_chances: how many comparisons, with other rivals or at other looks, could have come out better
            by chance.
    """
    found = against(rate, other, 1 - (1 - CONFIDENCE) / num_chances)
    return "inconclusive" if rate.num_rates > other.num_rates else found


def describe(ran: Mapping[str, Rate], optimizers: Iterable[str]) -> str:
    """Write scores and their learning rates, ordered by mean, then the optimizers that did not run."""
    ordered = sorted(ran.values(), key=lambda rate: rate.badness)
    words = [f"{look(rate.optimizer).title} {best_in_words(rate)}" for rate in ordered]
    words += [f"{look(name).title} not run" for name in optimizers if name not in ran]
    return "; ".join(words)
