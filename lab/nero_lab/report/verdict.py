"""How a claim is judged by records: the rules, apart from the claims themselves.

A difference counts if the ranges over seeds do not overlap. A claim that some optimiser is the best is
*held* if it is better than every other by that rule, *did not hold* if another is better than it by that
rule, and *undecided* otherwise: if ranges overlap, if it leads but a rival was not run, or if the one
that leads had more rates to choose from. Smoke runs are too small to test anything.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from nero_lab.report import wording
from nero_lab.report.results import Line, TaskResults
from nero_lab.report.scores import Comparison, Score, fewest_seeds
from nero_lab.report.style import look

Outcome = Literal["held", "did not hold", "undecided", "not tested"]
Results = Mapping[str, TaskResults]
Lines = Mapping[str, Line | None]

RULE = (
    "The rule: a difference counts if the ranges over seeds do not overlap. That is a weak test: with "
    "three seeds, ranges are disjoint by chance in one of ten pairs of equal optimisers, and with one seed "
    "there is no range at all; the outcome then says so. Every optimiser is taken at its best rate of "
    "those that were run. That rate is chosen by validation scores over the seeds with which all of its "
    "rates were run, and these scores are among those that are then compared, so that a score is a little "
    "too good, the more so the more rates were tried; and where all rates have one seed in common, another "
    "rate may have a better mean. A score is the value after the last epoch. A run that diverged is worse "
    "than any that did not; one that failed for another reason is drawn and not counted. “Undecided” means "
    "that ranges overlap, that the claim holds so far but an optimiser of the comparison was not run, or, "
    "where the claim is that one is the best, that the better one was tried at more rates. Smoke runs test "
    "nothing."
)


@dataclass(frozen=True)
class Judgement:
    """What records say of a claim."""

    outcome: Outcome
    measured: str
    scale: str = wording.NOTHING
    fewest_seeds: int | None = None  # of any score that was compared

    @property
    def rests_on_one_seed(self) -> bool:
        """Whether the outcome might be the luck of one run."""
        return self.fewest_seeds == 1 and self.outcome in ("held", "did not hold")


@dataclass(frozen=True)
class Claim:
    """One statement of the paper.

    Args:
        key: the name under which ``comments.toml`` can say more.
        where: section, figure or table.
        text: the statement.
        task: the task that tests it, or "" if several do.
        judge: the test.
    """

    key: str
    where: str
    text: str
    task: str
    judge: Callable[[Results], Judgement]


def headline(judgements: Iterable[Judgement]) -> str:
    """Count the outcomes, and those that rest on one seed.

    Example:
        >>> headline([Judgement("held", "", fewest_seeds=1), Judgement("held", "", fewest_seeds=3)])
        'Of 2 claims: 2 held (1 of them on one seed).'
    """
    judged = list(judgements)
    words = []
    outcomes: tuple[Outcome, ...] = ("held", "did not hold", "undecided", "not tested")
    for outcome in outcomes:
        same = [judgement for judgement in judged if judgement.outcome == outcome]
        num_weak = sum(judgement.rests_on_one_seed for judgement in same)
        if same:
            words.append(
                f"{len(same)} {outcome}"
                + (f" ({num_weak} of them on one seed)" if num_weak else "")
            )
    return f"Of {len(judged)} claims: {', '.join(words)}."


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
    outcome = leads(lines, favourite)
    return Judgement(outcome, describe(lines), found.scale, fewest_seeds(scores_of(lines).values()))


def leads(lines: Lines, favourite: str) -> Outcome:
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
