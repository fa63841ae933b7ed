"""How a claim is judged by records: the rules, apart from the claims themselves.

A difference counts if the ranges over seeds do not overlap. A claim that some optimiser is the best is
*held* if it is better than every other by that rule, *did not hold* if another is better than it by that
rule, and *undecided* otherwise: if ranges overlap, if it leads but a rival was not run, or if the one
that leads had more rates to choose from. With fewer than three seeds of anything that was compared,
*held* and *did not hold* become leanings. Smoke runs are too small to test anything.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from nero_lab.report import wording
from nero_lab.report.results import Line, TaskResults
from nero_lab.report.scores import Comparison, Score, fewest_seeds
from nero_lab.report.style import look

Finding = Literal["held", "did not hold", "undecided", "not shown", "not tested"]
"""What the scores say, taken at face value."""

Outcome = Literal[Finding, "leans towards held", "leans towards not held"]
"""What the report says."""

MIN_SEEDS = 3
"""Of every score that is compared, for an outcome: fewer show a leaning."""

_LEANINGS: Mapping[Finding, Outcome] = {
    "held": "leans towards held",
    "did not hold": "leans towards not held",
}
OUTCOMES: tuple[Outcome, ...] = (
    *("held", "did not hold", *_LEANINGS.values()),
    *("undecided", "not shown", "not tested"),
)
"""In the order of the headline."""

Results = Mapping[str, TaskResults]
Lines = Mapping[str, Line | None]

RULE = (
    "The rule: a difference counts if the ranges over seeds do not overlap. That is a weak test: with "
    "three seeds, ranges are disjoint by chance in one of ten pairs of equal optimisers. With fewer "
    "than three seeds of anything that is compared, the result is a leaning and not an outcome. Every "
    "optimiser is taken at its best rate of those that were run; where that is the smallest or the "
    "largest of them, a better one may lie beyond, and the table says so. That rate is chosen by "
    "validation scores over the seeds with which all of its rates were run, and these scores are among "
    "those that are then compared, so that a score is a little too good, the more so the more rates "
    "were tried; and where all rates have one seed in common, another rate may have a better mean. A "
    "score is the value after the last epoch. A run that diverged is worse than any that did not; one "
    "that failed for another reason is drawn and not counted. “Undecided” means that ranges overlap, "
    "that the claim holds so far but an optimiser of the comparison was not run, that two optimisers "
    "were compared at one rate each and not the same, or, where the claim is that one is the best, that"
    " the better one was tried at more rates. “Not shown” means that the claim is about rivals that "
    "fail, and that they were not tuned enough to say so. Smoke runs test nothing."
)


@dataclass(frozen=True)
class Judgement:
    """What records say of a claim."""

    finding: Finding
    measured: str
    scale: str = wording.NOTHING
    fewest_seeds: int | None = None  # of any score that was compared

    @property
    def outcome(self) -> Outcome:
        """The finding, or a leaning towards it if there were too few seeds.

        Example:
            >>> Judgement("held", "", fewest_seeds=3).outcome
            'held'
            >>> Judgement("did not hold", "", fewest_seeds=1).outcome
            'leans towards not held'
        """
        if (self.fewest_seeds or 0) >= MIN_SEEDS:
            return self.finding
        return _LEANINGS.get(self.finding, self.finding)

    @property
    def contradicts(self) -> bool:
        """Whether the scores speak against the claim, however few they are."""
        return self.finding == "did not hold"


@dataclass(frozen=True)
class Claim:
    """One statement of the paper.

    Args:
        key: the name under which ``comments.toml`` can say more.
        where: section, figure or table.
        text: the statement.
        task: the task that tests it, or "" if several do.
        judge: the test.
        withdrawn: why we no longer say that it held; told until records decide the matter.
    """

    key: str
    where: str
    text: str
    task: str
    judge: Callable[[Results], Judgement]
    withdrawn: str = ""

    def told(self, judgement: Judgement) -> str:
        """Write what was measured and, if that does not show the claim, why it was withdrawn."""
        if self.withdrawn and judgement.finding == "not shown":
            return f"{judgement.measured}. **Withdrawn.** {self.withdrawn}"
        return judgement.measured


def headline(judgements: Iterable[Judgement]) -> str:
    """Count the outcomes.

    Example:
        >>> headline([Judgement("held", "", fewest_seeds=1), Judgement("held", "", fewest_seeds=3)])
        'Of 2 claims: 1 held, 1 leaning towards held.'
    """
    counts = Counter(judgement.outcome for judgement in judgements)
    words = [
        f"{counts[outcome]} {outcome.replace('leans', 'leaning')}"
        for outcome in OUTCOMES
        if counts[outcome]
    ]
    return f"Of {counts.total()} claims: {', '.join(words)}."


def tested(results: Results, task: str) -> TaskResults | None:
    """Return the results of a task, unless there are none or only smoke runs."""
    found = results.get(task)
    return None if found is None or found.scale == "smoke" else found


def not_tested(results: Results, task: str) -> Judgement:
    """Return the judgement on a claim that was not tested."""
    if task in results:
        return Judgement("not tested", "smoke runs only", results[task].scale)
    return Judgement("not tested", "no runs")


def best_of(results: Results, task: str, favourite: str, lineup: Iterable[str]) -> Judgement:
    """Judge the claim that one optimiser of a line-up has the best score of a task."""
    found = tested(results, task)
    if found is None:
        return not_tested(results, task)
    lines = found.pick(lineup)
    finding = leads(lines, favourite)
    return Judgement(finding, describe(lines), found.scale, fewest_seeds(scores_of(lines).values()))


def leads(lines: Lines, favourite: str) -> Finding:
    """Judge whether one line has the best score of several; None stands for what was not run."""
    ran = {name: line for name, line in lines.items() if line and line.score}
    best = ran.pop(favourite, None)
    if best is None or not ran:
        return "not tested"
    comparisons = {compared(best, other) for other in ran.values()}
    if "worse" in comparisons:
        return "did not hold"
    is_clear = comparisons == {"better"} and len(ran) == len(lines) - 1
    return "held" if is_clear else "undecided"


def compared(line: Line, other: Line) -> Comparison:
    """Compare two lines at their best rates; who had more rates to choose from cannot win by that."""
    assert line.score
    assert other.score
    found = line.score.against(other.score)
    num_more = len(line.rates) - len(other.rates)
    is_unfair = num_more > 0 if found == "better" else num_more < 0
    return "overlap" if is_unfair else found


def scores_of(lines: Lines) -> dict[str, Score | None]:
    """Return the scores of lines at their best rates."""
    return {name: line.score if line else None for name, line in lines.items()}


def describe(lines: Lines) -> str:
    """Write scores and their rates in the order of their means, then what was not run."""
    ran = {name: (line, line.score) for name, line in lines.items() if line and line.score}
    words = [
        f"{look(name).title} {wording.best_in_words(line)}"
        for name, (line, score) in sorted(ran.items(), key=lambda item: item[1][1].badness)
    ]
    words += [f"{look(name).title} not run" for name in lines if name not in ran]
    return "; ".join(words)
