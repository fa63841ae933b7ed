"""The tests that records must pass for a claim of the paper to hold."""

from nero_lab.engine.task import Task
from nero_lab.report import lineups, paper, wording
from nero_lab.report.results import NERO_LR, Line
from nero_lab.report.scores import Comparison, Score, fewest_seeds
from nero_lab.report.style import look
from nero_lab.report.verdict import (
    Finding,
    Judgement,
    Lines,
    Results,
    best_of,
    describe,
    leads,
    not_tested,
    scores_of,
    tested,
)

AS_IT_WAS = 0.5  # points of error; the paper's two scores of Madam differ by 0.17
UNSTABLE_RATIO = 2.0  # between the worst and the best seed of an unstable optimiser
HAS_NOT_LEARNT = -18.0  # Pong's reward; random play has -20.7
MIN_RATES = 3  # of a rival, for saying that it cannot train a network
REPARAMETERISED_LR = 0.01  # section 5.3 compares two scales of weights at this one rate


def constraints_help(results: Results) -> Judgement:
    """Judge whether Nero is best with both constraints."""
    return best_of(results, "cifar-vgg11", "nero", lineups.CONSTRAINTS)


def middle_ground(favourite: str, lineup: tuple[str, ...], results: Results) -> Judgement:
    """Judge whether one granularity of relative updates is the best."""
    return best_of(results, "cifar-vgg11", favourite, lineup)


def whom_constraints_help(results: Results) -> Judgement:
    """Judge whether constraints improve Nero and LAMB and leave Madam as it was."""
    found = tested(results, "cifar-vgg11")
    if found is None:
        return not_tested(results, "cifar-vgg11")
    lines = found.pick(name for pair in lineups.FREE_OF.items() for name in pair)
    scores, findings, words = scores_of(lines), set[Finding](), []
    for constrained, free in lineups.FREE_OF.items():
        words += [describe({constrained: lines[constrained]}), describe({free: lines[free]})]
        with_them, without = scores[constrained], scores[free]
        if with_them is None or without is None:
            findings.add("not tested")
        elif constrained == "madam-balanced":
            is_tuned = all(line and line.is_tuned for line in (lines[constrained], lines[free]))
            # At one rate each, and not the same, the rates may have made the difference.
            findings.add(_is_as_it_was(with_them, without) if is_tuned else "undecided")
        else:
            findings.add(leads({name: lines[name] for name in (constrained, free)}, constrained))
    finding: Finding = "undecided"
    if len(findings) == 1:
        finding = findings.pop()
    elif "did not hold" in findings:
        finding = "did not hold"
    return Judgement(finding, "; ".join(words), found.scale, fewest_seeds(scores.values()))


def _is_as_it_was(after: Score, before: Score) -> Finding:
    if abs(after.mean - before.mean) < AS_IT_WAS:
        return "held"
    return "undecided" if after.against(before) == "overlap" else "did not hold"


def reparameterised(results: Results) -> Judgement:
    """Judge whether the scale of raw weights matters to Adam."""
    found = tested(results, "mnist-reparam")
    if found is None:
        return not_tested(results, "mnist-reparam")
    pairs: dict[str, tuple[Score, Score]] = {}
    for name in lineups.REPARAMETERISED:
        small, large = (
            found.score(name, variant, lr=REPARAMETERISED_LR)
            for variant in ("sigma-1", "sigma-100")
        )
        if small and large:
            pairs[name] = small, large
    if not pairs:
        return Judgement("not tested", "both scales of the weights are needed", found.scale)
    words = [
        f"{lineups.REPARAMETERISED[name]} {wording.in_words(small)} at sigma = 1, "
        f"{wording.in_words(large)} at sigma = 100"
        for name, (small, large) in pairs.items()
    ]
    measured = f"training accuracy, all at lr {REPARAMETERISED_LR:g}: {'; '.join(words)}"
    if len(pairs) > 1:
        measured += ". The first is judged: the authors' Adam has that beta1"
    small, large = next(iter(pairs.values()))
    finding: Finding = "undecided" if small.against(large) == "overlap" else "held"
    return Judgement(finding, measured, found.scale, fewest_seeds((small, large)))


def trains_deep(results: Results) -> Judgement:
    """Judge whether Nero, and no other, trains 100 layers from He initialisation.

    That a rival fails is shown only by several rates of it, none of the outer ones the best.
    """
    found = tested(results, "mnist-deep")
    if found is None:
        return not_tested(results, "mnist-deep")
    lines = found.pick(lineups.OF_PAPER)
    scores = scores_of(lines)
    measured = describe(lines)
    others = found.pick(lineups.OF_PAPER, "torch-init")
    if any(scores_of(others).values()):
        measured = (
            f"From He initialisation, which is judged: {measured}. "
            f"From torch's own (variant torch-init): {describe(others)}"
        )
    epoch = max((_num_epochs(line) for line in lines.values() if line), default=0)
    if not epoch:
        return Judgement("not tested", measured, found.scale)
    enough = _trained_accuracy(found.task, epoch)
    measured += f". {_authors_on_depth(found.task, epoch)}. So {enough:.2f} counts as trained"
    finding = _trains_alone(lines, enough)
    return Judgement(finding, measured, found.scale, fewest_seeds(scores.values()))


def _trained_accuracy(task: Task, epoch: int) -> float:
    """Return what divides the authors' Nero from their rivals, after as many epochs as ours."""
    curves = paper.best_curves(task, task.metric.name)
    worst_nero = min(curve.range_at(epoch)[0] for curve in curves if curve.optimizer == "nero")
    best_rival = max(curve.range_at(epoch)[1] for curve in curves if curve.optimizer != "nero")
    return (worst_nero + best_rival) / 2


def _num_epochs(line: Line) -> int:
    return max(int(run.config["recipe"]["epochs"]) for run in line.best.runs)


def _trains_alone(lines: Lines, enough: float) -> Finding:
    scores = scores_of(lines)
    nero = scores["nero"]
    rivals = [scores[name] for name in lineups.RIVALS]
    if nero is None or not any(rivals):
        return "not tested"
    if nero.low <= enough:
        return "did not hold"
    if any(rival and rival.low > enough for rival in rivals):
        return "did not hold"
    # A rival that trains with some seeds is not reliable, but has not failed either.
    has_doubt = any(rival is None or rival.high > enough for rival in rivals)
    if has_doubt:
        return "undecided"
    return "held" if all(_had_a_chance(lines[name]) for name in lineups.RIVALS) else "not shown"


def _had_a_chance(line: Line | None) -> bool:
    return line is not None and len(line.rates) >= MIN_RATES and not line.end_of_rates


def _authors_on_depth(task: Task, our_epoch: int) -> str:
    """Say where the authors' curves are when ours end, and where they end."""
    curves = paper.best_curves(task, task.metric.name)
    words = []
    for epoch in sorted({our_epoch, int(curves[0].x[-1])}):
        ranges = []
        for curve in curves:
            low, high = curve.range_at(epoch)
            span = wording.span(f"{low:.2f}", f"{high:.2f}")
            ranges.append(f"{look(curve.optimizer).title} {span}")
        words.append(f"after {epoch} epochs {', '.join(ranges)}")
    return f"The authors' own curves: {'; '.join(words)}"


def best_in_table(task: str, results: Results) -> Judgement:
    """Judge whether Nero has the best score of a task of Table 1."""
    return best_of(results, task, "nero", lineups.OF_PAPER)


def sgd_unstable(results: Results) -> Judgement:
    """Judge whether SGD is unstable on translation, and worse than the others.

    It is looked at where one would use it: at its best rate and at the published one. That it diverges
    at some rate is true of every optimiser.
    """
    found = tested(results, "multi30k")
    if found is None:
        return not_tested(results, "multi30k")
    lines = found.pick(lineups.OF_PAPER)
    line, scores = lines["sgd"], scores_of(lines)
    sgd = scores.pop("sgd")
    if line is None or sgd is None or not any(scores.values()):
        return Judgement("not tested", describe(lines), found.scale)
    measured, seen = describe(lines), [sgd]
    for lr in (entry.lr for entry in paper.published(found.task, "sgd")):
        score = found.score("sgd", lr=lr)
        if score and lr != line.best.lr:
            seen.append(score)
            measured += f". SGD at the published lr {lr:g}: {wording.in_words(score)}"
    comparisons = [sgd.against(score) for score in scores.values() if score]
    finding: Finding = "undecided"
    if "better" in comparisons:
        finding = "did not hold"
    elif not any(map(_is_unstable, seen)):
        # One seed cannot show how far seeds are apart.
        finding = "did not hold" if any(score.num_seeds > 1 for score in seen) else "undecided"
    elif "overlap" not in comparisons and None not in scores.values():
        finding = "held"
    fewest = fewest_seeds((*seen, *scores.values()))
    return Judgement(finding, measured, found.scale, fewest)


def _is_unstable(score: Score) -> bool:
    return score.num_lost > 0 or score.high > UNSTABLE_RATIO * score.low


def lamb_fails_on_pong(results: Results) -> Judgement:
    """Judge whether LAMB learns nothing on Pong while Nero does."""
    found = tested(results, "pong")
    if found is None:
        return not_tested(results, "pong")
    lines = found.pick(("nero", "lamb"))
    measured, scores = describe(lines), scores_of(lines)
    lamb, nero = scores["lamb"], scores["nero"]
    if lamb is None or nero is None:
        return Judgement("not tested", measured, found.scale)
    finding: Finding = "held"
    if lamb.mean > HAS_NOT_LEARNT:
        finding = "did not hold"
    elif nero.mean <= HAS_NOT_LEARNT:
        finding = "undecided"
        measured += "; too short a run for either to learn"
    return Judgement(finding, measured, found.scale, fewest_seeds(scores.values()))


def imagenet(results: Results) -> Judgement:
    """Judge whether SGD with momentum and weight decay is ahead of Nero on ImageNet."""
    found = tested(results, "imagenet")
    if found is None:
        return not_tested(results, "imagenet")
    line, sgd = found.line("sgd-momentum"), found.score("sgd-momentum")
    nero = found.score("nero", lr=NERO_LR)
    if line is None or sgd is None or nero is None:
        return Judgement("not tested", "both are needed, Nero at its default", found.scale)
    findings: dict[Comparison, Finding] = {"better": "held", "worse": "did not hold"}
    finding = findings.get(sgd.against(nero), "undecided")
    measured = (
        f"SGD with momentum {wording.best_in_words(line)}; "
        f"Nero {wording.in_words(nero)} at lr {NERO_LR:g}"
    )
    return Judgement(finding, measured, found.scale, fewest_seeds((sgd, nero)))
