"""The tests that records must pass for a claim of the paper to hold."""

from nero_lab.report import paper, wording
from nero_lab.report.results import NERO_LR, Line, TaskResults
from nero_lab.report.style import look
from nero_lab.report.verdict import (
    Judgement,
    Outcome,
    Results,
    best_of,
    describe,
    fewest_seeds,
    leads,
    not_tested,
    tested,
)

RIVALS = ("sgd", "adam", "lamb")
MIN_TRAINED_ACCURACY = 0.5  # above this a deep perceptron counts as trained; guessing gives 0.11
UNSTABLE_RATIO = 2.0  # between the worst and the best seed of an unstable optimiser
NEAR_BEST = 0.05  # a rate is good if its score is within this share of the best one
HAS_NOT_LEARNT = -18.0  # Pong's reward; random play has -20.7


def constraints_help(results: Results) -> Judgement:
    """Judge whether Nero is best with both constraints."""
    return best_of(results, "cifar-vgg11", "nero", ("nero-norm", "nero-mean", "nero-none"))


def middle_ground(favourite: str, rivals: tuple[str, ...], results: Results) -> Judgement:
    """Judge whether one granularity of relative updates is the best."""
    return best_of(results, "cifar-vgg11", favourite, rivals)


def whom_constraints_help(results: Results) -> Judgement:
    """Judge whether constraints improve Nero and LAMB and leave Madam as it was."""
    found = tested(results, "cifar-vgg11")
    if found is None:
        return not_tested(results, "cifar-vgg11")
    pairs = {"nero": "nero-none", "lamb-balanced": "lamb", "madam-balanced": "madam"}
    effects = {}
    for constrained, free in pairs.items():
        with_them, without = found.score(constrained), found.score(free)
        if with_them and without:
            effects[constrained] = with_them.against(without)
    scores = {name: found.score(name) for pair in pairs.items() for name in pair}
    measured, fewest = describe(scores), fewest_seeds(scores)
    expected = {"nero": "better", "lamb-balanced": "better", "madam-balanced": "overlap"}
    outcome: Outcome = "undecided"
    if not effects:
        outcome = "not tested"
    elif "worse" in effects.values() or effects.get("madam-balanced", "overlap") != "overlap":
        outcome = "did not hold"
    elif effects == expected:
        outcome = "held"
    return Judgement(outcome, measured, found.scale, fewest)


def reparameterised(results: Results) -> Judgement:
    """Judge whether the scale of raw weights matters to Adam."""
    found = tested(results, "mnist-reparam")
    if found is None:
        return not_tested(results, "mnist-reparam")
    small, large = (found.score("adam", variant) for variant in ("sigma-1", "sigma-100"))
    if small is None or large is None:
        return Judgement("not tested", "both scales of the weights are needed", found.scale)
    measured = (
        f"training accuracy {wording.in_words(small)} at sigma = 1, "
        f"{wording.in_words(large)} at sigma = 100, the same rate of Adam"
    )
    outcome: Outcome = "did not hold" if small.against(large) == "overlap" else "held"
    fewest = fewest_seeds({"small": small, "large": large})
    return Judgement(outcome, measured, found.scale, fewest)


def trains_deep(results: Results) -> Judgement:
    """Judge whether Nero, and no other, trains 100 layers."""
    found = tested(results, "mnist-deep")
    if found is None:
        return not_tested(results, "mnist-deep")
    scores = {name: found.score(name) for name in ("nero", *RIVALS)}
    outcome, measured = leads(scores, "nero"), describe(scores)
    nero = scores["nero"]
    if nero and nero.low < MIN_TRAINED_ACCURACY and outcome != "not tested":
        outcome = "did not hold"
    authors = [
        f"{look(curve.optimizer).title} {_range(curve.low[-1], curve.high[-1])}"
        for curve in paper.best_curves(found.task, found.task.metric.name)
    ]
    measured += f". The authors' own curves end, after 50 epochs, at: {', '.join(authors)}"
    return Judgement(outcome, measured, found.scale, fewest_seeds(scores))


def _range(low: float, high: float) -> str:
    ends = dict.fromkeys((f"{low:.2f}", f"{high:.2f}"))
    return " to ".join(ends)


def best_in_table(task: str, results: Results) -> Judgement:
    """Judge whether Nero has the best score of a task of Table 1."""
    return best_of(results, task, "nero", RIVALS)


def good_out_of_the_box(results: Results) -> Judgement:
    """Judge whether the default rate is near the best one in all tasks but one."""
    good: list[str] = []
    bad: list[str] = []
    scales = set()
    for task in paper.TABLE_TASKS:
        found = tested(results, task)
        line = found.line("nero") if found else None
        if found is None or line is None or NERO_LR not in line.arms or not line.is_tuned:
            continue
        scales.add(found.scale)
        loss = _loss_by_default(line)
        if loss is None:
            continue
        (good if loss <= NEAR_BEST else bad).append(_default_in_words(found, line, loss))
    if not good and not bad:
        return Judgement("not tested", "no task of Table 1 was run at several rates of Nero")
    measured = "; ".join(good + bad)
    outcome: Outcome = "held" if len(bad) <= 1 else "did not hold"
    if outcome == "held" and len(good) + len(bad) < len(paper.TABLE_TASKS) - 1:
        outcome = "undecided"
    return Judgement(outcome, measured, ", ".join(sorted(scales)))


def _loss_by_default(line: Line) -> float | None:
    """Return how much worse the default rate is than the best one, as a share of the best score."""
    default, best = line.arms[NERO_LR].score, line.score
    if default is None or best is None or not best.values:
        return None
    if default.num_lost:
        return float("inf")
    return max(default.badness - best.badness, 0.0) / (abs(best.mean) or 1.0)


def _default_in_words(found: TaskResults, line: Line, loss: float) -> str:
    if line.best.lr == NERO_LR:
        return f"{found.task.name}: best"
    default, best = line.arms[NERO_LR].score, line.score
    share = f" ({100 * loss:.1f} % worse)" if loss < 1 else ""
    return (
        f"{found.task.name}: {wording.mean(default)} against {wording.mean(best)} at lr "
        f"{line.best.lr:g}{share}"
    )


def sgd_unstable(results: Results) -> Judgement:
    """Judge whether SGD is unstable on translation, and worse than the others."""
    found = tested(results, "multi30k")
    if found is None:
        return not_tested(results, "multi30k")
    line, scores = found.line("sgd"), {name: found.score(name) for name in ("nero", "adam", "lamb")}
    sgd = line.score if line else None
    if line is None or sgd is None or not any(scores.values()):
        return Judgement("not tested", describe({"sgd": sgd, **scores}), found.scale)
    lost = sum(len(arm.lost) for arm in line.arms.values())
    total = sum(len(arm.seeds) for arm in line.arms.values())
    is_unstable = lost > 0 or sgd.high > UNSTABLE_RATIO * sgd.low
    comparisons = [sgd.against(score) for score in scores.values() if score]
    measured = (
        f"{describe({'sgd': sgd, **scores})}. Of {total} runs of SGD at all rates, {lost} were lost"
    )
    outcome: Outcome = "undecided"
    if not is_unstable or "better" in comparisons:
        outcome = "did not hold"
    elif "overlap" not in comparisons and None not in scores.values():
        outcome = "held"
    return Judgement(outcome, measured, found.scale, fewest_seeds({"sgd": sgd, **scores}))


def lamb_fails_on_pong(results: Results) -> Judgement:
    """Judge whether LAMB learns nothing on Pong while Nero does."""
    found = tested(results, "pong")
    if found is None:
        return not_tested(results, "pong")
    lamb, nero = found.score("lamb"), found.score("nero")
    measured = describe({"nero": nero, "lamb": lamb})
    if lamb is None or nero is None:
        return Judgement("not tested", measured, found.scale)
    outcome: Outcome = "held"
    if lamb.mean > HAS_NOT_LEARNT:
        outcome = "did not hold"
    elif nero.mean <= HAS_NOT_LEARNT:
        outcome = "undecided"
        measured += "; too short a run for either to learn"
    fewest = fewest_seeds({"nero": nero, "lamb": lamb})
    return Judgement(outcome, measured, found.scale, fewest)


def imagenet(results: Results) -> Judgement:
    """Judge whether SGD with momentum and weight decay is ahead of Nero on ImageNet."""
    found = tested(results, "imagenet")
    if found is None:
        return not_tested(results, "imagenet")
    scores = {name: found.score(name) for name in ("nero", "sgd-momentum")}
    outcome = leads(scores, "sgd-momentum")
    return Judgement(outcome, describe(scores), found.scale, fewest_seeds(scores))
