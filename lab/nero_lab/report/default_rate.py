"""The claim that Nero's default rate suits it out of the box, in all tasks of Table 1 but one."""

from nero_lab.report import paper, wording
from nero_lab.report.results import Line, TaskResults
from nero_lab.report.scores import Score, fewest_seeds
from nero_lab.report.verdict import Finding, Judgement, Results, tested

NEAR_BEST = 0.05
"""A rate is good if its score is within this share of the best one."""

NEAR_BEST_REWARD = 2.0
"""For a reward, which has no zero to take a share of, this many points: of 42 between loss and win."""


def good_out_of_the_box(results: Results) -> Judgement:
    """Judge whether the default rate is near the best one in all tasks but one."""
    good: list[str] = []
    bad: list[str] = []
    scores: list[Score] = []
    scales = set()
    for task in paper.TABLE:
        found = tested(results, task)
        line = found.line("nero") if found else None
        default = line.default.score if line and line.default else None
        best = line.score if line else None
        if found is None or line is None or default is None or best is None or not line.is_tuned:
            continue
        scales.add(found.scale)
        scores += [default, best]
        is_good = _is_near(default, best, is_reward="reward" in found.task.metric.name)
        (good if is_good else bad).append(_in_words(found, line, default, best))
    if not scores:
        return Judgement("not tested", "no task of Table 1 was run at several rates of Nero")
    finding: Finding = "held" if len(bad) <= 1 else "did not hold"
    if finding == "held" and len(good) + len(bad) < len(paper.TABLE) - 1:
        finding = "undecided"
    where = ", ".join(sorted(scales))
    return Judgement(finding, "; ".join(good + bad), where, fewest_seeds(scores))


def _is_near(default: Score, best: Score, *, is_reward: bool) -> bool:
    if default.num_lost:  # nothing to recommend, even if the best rate lost runs too
        return False
    worse_by = default.badness - best.badness
    return worse_by <= (NEAR_BEST_REWARD if is_reward else NEAR_BEST * abs(best.mean))


def _in_words(found: TaskResults, line: Line, default: Score, best: Score) -> str:
    name, choice = found.task.name, wording.choice(line)
    if line.best is line.default:
        return f"{name}: {choice}, {wording.in_words(best)}"
    return (
        f"{name}: {wording.in_words(default)} against {wording.in_words(best)} at lr "
        f"{line.best.lr:g}, {choice}"
    )
