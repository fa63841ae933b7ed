"""How a claim is judged by records: the rules, apart from the claims themselves.

A difference counts if the ranges over seeds do not overlap. A claim that some optimiser is the best is
*held* if it is better than every other by that rule, *did not hold* if another is better than it by that
rule, and *undecided* otherwise: if ranges overlap, or if it leads but a rival was not run. Smoke runs are
too small to test anything.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from nero_lab.report import wording
from nero_lab.report.results import Score, TaskResults
from nero_lab.report.style import look

Outcome = Literal["held", "did not hold", "undecided", "not tested"]
Results = Mapping[str, TaskResults]

RULE = (
    "The rule: a difference counts if the ranges over seeds do not overlap. Every optimiser is taken at "
    "its best rate of those that were run, a score is the value after the last epoch, and a run that "
    "diverged or failed is worse than any that did not. “Undecided” means that ranges overlap, "
    "or that the claim holds so far but an optimiser of the comparison was not run. With one seed there "
    "is no range, and the outcome says so. Smoke runs test nothing."
)


@dataclass(frozen=True)
class Judgement:
    """What records say of a claim."""

    outcome: Outcome
    measured: str
    scale: str = wording.NOTHING
    fewest_seeds: int | None = None  # of any score that was compared


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


def tested(results: Results, task: str) -> TaskResults | None:
    """Return the results of a task, unless there are none or only smoke runs."""
    found = results.get(task)
    return None if found is None or found.scale == "smoke" else found


def not_tested(results: Results, task: str) -> Judgement:
    """Return the judgement on a claim that was not tested."""
    if task in results:
        return Judgement("not tested", "smoke runs only", results[task].scale)
    return Judgement("not tested", "no runs")


def best_of(results: Results, task: str, favourite: str, rivals: Iterable[str]) -> Judgement:
    """Judge the claim that one optimiser has the best score of a task."""
    found = tested(results, task)
    if found is None:
        return not_tested(results, task)
    names = [favourite, *rivals]
    scores = {name: found.score(name) for name in names}
    measured = describe(scores)
    return Judgement(leads(scores, favourite), measured, found.scale, fewest_seeds(scores))


def leads(scores: Mapping[str, Score | None], favourite: str) -> Outcome:
    """Judge whether one score is the best of several; None stands for what was not run."""
    best = scores[favourite]
    others = [score for name, score in scores.items() if name != favourite and score]
    if best is None or not others:
        return "not tested"
    if any(best.against(other) == "worse" for other in others):
        return "did not hold"
    is_clear = all(best.against(other) == "better" for other in others)
    return "held" if is_clear and None not in scores.values() else "undecided"


def fewest_seeds(scores: Mapping[str, Score | None]) -> int | None:
    """Return the smallest number of seeds of any score."""
    return min((score.num_seeds for score in scores.values() if score), default=None)


def describe(scores: Mapping[str, Score | None]) -> str:
    """Write scores in the order of their means, then what was not run."""
    ran = {name: score for name, score in scores.items() if score}
    words = [
        f"{look(name).title} {wording.in_words(score)}"
        for name, score in sorted(ran.items(), key=lambda item: item[1].badness)
    ]
    words += [f"{look(name).title} not run" for name in scores if name not in ran]
    return "; ".join(words)
