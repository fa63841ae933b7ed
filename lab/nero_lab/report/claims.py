"""The paper's claims, each with the test that decides whether it holds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nero_lab.report import comparisons, paper
from nero_lab.report.comparisons import OF_PAPER
from nero_lab.report.differences import MIN_SEEDS, against, difference, shared_seeds
from nero_lab.report.formatting import best_in_words, choice, in_words, span
from nero_lab.report.lab import NUM_RATES
from nero_lab.report.rates import NERO_LR, Rate
from nero_lab.report.runs import PROTOCOL_SCALE, Results
from nero_lab.report.style import look
from nero_lab.report.verdicts import (
    Claim,
    Finding,
    Verdict,
    best_of,
    describe,
    leads,
    pairs_of,
)

AS_IT_WAS = 0.5  # percentage points of error; the paper's two Madam scores differ by 0.17
UNSTABLE_RATIO = 2.0  # between an unstable optimizer's worst and best seed
HAS_NOT_LEARNT = -18.0  # Pong's reward; random play gets -20.7
MIN_RATES = 3  # a rival must have this many before we say that it cannot train a network
WORDS_PER_SENTENCE = 14  # on Multi30k; the published rate of SGD is for a loss summed over words
REPARAMETERISED_LR = 0.01  # section 5.3 compares two scales of weights at this learning rate
NEAR_BEST = 0.05  # a learning rate is good if its score is within this fraction of the best
NEAR_BEST_REWARD = 2.0  # points out of a range of 42, because a reward has no natural zero

CLAIMS: list[Claim] = []
"""In the paper's order."""

Test = Callable[[Any], Verdict]


def claim(key: str, task: str, where: str, text: str, *, title: str = "") -> Callable[[Test], Test]:
    """Return a decorator that registers a test of this claim: see ``Claim``."""

    def register(test: Test) -> Test:
        CLAIMS.append(Claim(key, task, where, text, test, title or text))
        return test

    return register


claim(
    *("constraints-help", "cifar-vgg11", "§5.1, Figure 1"),
    "Nero is best with both constraints switched on (VGG-11).",
    title="VGG-11: both constraints beat one or none",
)(best_of("nero", comparisons.CONSTRAINTS))
claim(
    *("middle-ground-without", "cifar-vgg11", "§5.2, Figure 2, top"),
    "Without constraints, Nero (per neuron) beats Madam (per synapse) and LAMB (per layer), though not "
    "by much: 12.2% against 12.8% and 12.7% in the paper.",
    title="VGG-11, no constraints: per neuron beats per synapse and per layer",
)(best_of("nero-none", comparisons.RELATIVE_FREE))
claim(
    *("middle-ground-with", "cifar-vgg11", "§5.2, Figure 2, bottom"),
    "With constraints, Nero beats Madam and LAMB.",
    title="VGG-11, constraints: per neuron beats per synapse and per layer",
)(best_of("nero", comparisons.RELATIVE_BALANCED, num_looks=4))


@claim(
    *("whom-constraints-help", "cifar-vgg11", "§5.2, Figure 2"),
    "Constraints improve Nero and LAMB, and leave Madam unchanged.",
    title="VGG-11: constraints improve Nero and LAMB, but not Madam",
)
def _whom_constraints_help(results: Results) -> Verdict:
    findings, words = set[Finding](), []
    rates: list[Rate] = []
    pairs = zip(comparisons.RELATIVE_BALANCED, comparisons.RELATIVE_FREE, strict=True)
    for constrained, free in pairs:
        ran = results.best((constrained, free))
        words += [describe(results.best([name]), [name]) for name in (constrained, free)]
        rates += ran.values()
        if len(ran) < 2:
            findings.add("not tested")
        elif constrained != "madam-balanced":
            findings.add(leads(constrained, ran, num_compared=2))
        elif any(rate.num_rates < 2 for rate in ran.values()):
            # Each ran at a single learning rate, not the same one, which may explain the difference.
            findings.add("undecided")
        elif abs(ran[constrained].mean - ran[free].mean) < AS_IT_WAS:
            findings.add("held")
        else:
            same = against(ran[constrained], ran[free]) == "inconclusive"
            findings.add("undecided" if same else "did not hold")
    finding: Finding = "did not hold" if "did not hold" in findings else "undecided"
    if len(findings) == 1:
        finding = findings.pop()
    compared = list(zip(rates[::2], rates[1::2], strict=True)) if len(rates) == 6 else []
    return Verdict(finding, "; ".join(words), shared_seeds(rates), pairs=compared)


@claim(
    *("reparameterisation", "mnist-reparam", "§5.3, Figure 3, left"),
    "With reparameterized weights, Adam is sensitive to sigma, the scale of the raw weights.",
    title="MNIST: reparameterized Adam depends on the raw weights' scale",
)
def _reparameterised_adam_depends_on_scale(results: Results) -> Verdict:
    pairs: list[tuple[Rate, Rate]] = []
    words = []
    for name, title in comparisons.REPARAMETERISED.items():
        small, large = (
            results.rate(name, REPARAMETERISED_LR, sigma) for sigma in ("sigma-1", "sigma-100")
        )
        if small and large:
            pairs.append((small, large))
            words.append(
                f"{title} {in_words(small)} at sigma = 1, {in_words(large)} at sigma = 100"
            )
    if not pairs:
        return Verdict("not tested", "needs runs at both scales of the weights")
    measured = f"training accuracy, all at lr {REPARAMETERISED_LR:g}: {'; '.join(words)}"
    if len(pairs) > 1:
        measured += ". The first decides, because the authors' Adam has that beta1"
    finding: Finding = "undecided" if against(*pairs[0]) == "inconclusive" else "held"
    return Verdict(finding, measured, shared_seeds(pairs[0]), pairs=pairs[:1])


def _trains_alone_at_depth(
    optimizers: Sequence[str], variant: str, *, tuned: bool
) -> Callable[[Results], Verdict]:
    """Return the test of the claim that only the first of these optimizers trains the 100 layers."""

    def test(results: Results) -> Verdict:
        ran = _rates_at_depth(results, optimizers, variant, tuned=tuned)
        measured = describe(ran, optimizers)
        if not ran:
            return Verdict("not tested", measured)
        epoch = max(results.runs_of(rate).recipe.iloc[0]["epochs"] for rate in ran.values())
        enough, published = _enough_at_depth(results, epoch)
        full_width = "-".join(filter(None, ("full-width", variant)))
        for other in results.rates.variant.unique():
            if other.partition(",")[0] == full_width:
                wide = _rates_at_depth(results, optimizers, other, tuned=tuned)
                measured += (
                    f". At {other.replace('full-width', 'full width')}: {describe(wide, wide)}"
                )
        measured += f". The authors' curves: {published}. So {enough:.2f} counts as trained"
        finding = _trains_alone(ran, optimizers, enough, tuned=tuned)
        pairs = pairs_of(optimizers[0], ran)
        return Verdict(finding, measured, shared_seeds(ran.values()), pairs=pairs)

    return test


def _rates_at_depth(
    results: Results, optimizers: Sequence[str], variant: str, *, tuned: bool
) -> dict[str, Rate]:
    """Return each optimizer's best learning rate if they are tuned, otherwise the published one."""
    if tuned:
        return results.best(optimizers, variant)
    lrs = {name: results.task.lrs[name.removesuffix("-momentum")] for name in optimizers}
    found = {name: results.rate(name, lr, variant) for name, lr in lrs.items()}
    return {name: rate for name, rate in found.items() if rate}


def _enough_at_depth(results: Results, epoch: int) -> tuple[float, str]:
    """Return the accuracy midway between the authors' Nero and their rivals, and all their scores."""
    curves = paper.best_curves(results.task.name, results.task.metric.name)
    words = []
    for shown in sorted({epoch, curves.x.max()}):
        ranges = [
            f"{look(point.optimizer).title} {span(f'{point.low:.2f}', f'{point.high:.2f}')}"
            for point in paper.at(curves, shown).itertuples()
        ]
        words.append(f"after {shown} epochs {', '.join(ranges)}")
    theirs = paper.at(curves, epoch).set_index("optimizer")
    return (theirs.low["nero"] + theirs.high.drop("nero").max()) / 2, "; ".join(words)


def _trains_alone(
    ran: Mapping[str, Rate], optimizers: Sequence[str], enough: float, *, tuned: bool
) -> Finding:
    """Judge whether the first optimizer trains with every seed, and no other with any.

    If ``tuned``, a rival has failed only if it ran at several learning rates and the best is not an outer
    one, and the first optimizer must not have had more of them.
    """
    first, *others = optimizers
    rivals = [ran[name] for name in others if name in ran]
    if first not in ran or not rivals:
        return "not tested"
    if any(rival.low > enough for rival in rivals):
        return "did not hold"
    if ran[first].low <= enough:
        return "undecided"  # if none trains, the run may be too short or the network too narrow
    # A rival that trains with only some seeds is unreliable, but has not failed either.
    if len(rivals) < len(others) or any(rival.high > enough for rival in rivals):
        return "undecided"
    if not tuned:
        return "held"
    had_a_chance = [rival.num_rates >= MIN_RATES and not rival.end_of_rates for rival in rivals]
    fewest = min(rival.num_rates for rival in rivals)
    return "held" if all(had_a_chance) and ran[first].num_rates <= fewest else "not shown"


claim(
    *("deep", "mnist-deep", "§5.4, Figure 3, right"),
    "Unlike SGD, Adam and LAMB, Nero reliably trains a 100-layer MLP. (In the authors' setting: torch's "
    "initialization, published learning rates, momentum for Adam and LAMB.)",
    title="MNIST, 100 layers, the authors' setting: only Nero trains",
)(
    _trains_alone_at_depth(
        ("nero", "sgd", "adam-momentum", "lamb-momentum"), "torch-init", tuned=False
    )
)
claim(
    *("deep-tuned", "mnist-deep", "after §5.4, not in the paper"),
    "If all four are tuned over the same number of learning rates, from He initialization and without "
    "momentum, only Nero trains a 100-layer MLP.",
    title="MNIST, 100 layers, all tuned from He initialization: only Nero trains",
)(_trains_alone_at_depth(OF_PAPER, "", tuned=True))


for _task, _title in paper.TABLE.items():
    claim(
        *(f"best-{_task}", _task, "§5.5, Table 1"),
        f"Nero beats SGD, Adam and LAMB on {_title}.",
        title=f"{_title}: Nero is the best of four",
    )(best_of("nero", OF_PAPER))


@claim(
    *("out-of-the-box", "", "§5.5, Table 1"),
    "A learning rate of 0.01 works for Nero out of the box: it was the best on five of six tasks. (Here: "
    f"within {100 * NEAR_BEST:.0f}% of the best, or {NEAR_BEST_REWARD:g} points for a reward, on all but "
    "one.)",
    title="A learning rate of 0.01 works for Nero out of the box",
)
def _default_rate_is_good(results: Mapping[str, Results]) -> Verdict:
    good: list[str] = []
    bad: list[str] = []
    rates: list[Rate] = []
    scales = set()
    for task in filter(results.__contains__, paper.TABLE):
        found = results[task]
        best, default = found.best(["nero"]).get("nero"), found.rate("nero", NERO_LR)
        is_short = found.scale == PROTOCOL_SCALE  # and may have been interrupted
        min_rates, min_seeds = (NUM_RATES, MIN_SEEDS) if is_short else (2, 1)
        if not best or not default or best.num_rates < min_rates:
            continue
        if min(best.num_seeds, default.num_seeds) < min_seeds:
            continue
        rates += [default, best]
        scales.add(found.scale)
        is_reward = "reward" in found.task.metric.name
        margin = NEAR_BEST_REWARD if is_reward else NEAR_BEST * abs(best.mean)
        # We cannot recommend a learning rate that diverges, even if the best one does too.
        gap = difference(best, default).mean  # over the seeds that both have
        is_good = not default.num_diverged and not gap > margin
        text = f"{in_words(default)} against {best_in_words(best)}"
        if best.is_default:
            text = f"{in_words(best)} at the default, {choice(best)}"
        (good if is_good else bad).append(f"{task}: {text}")
    if not rates:
        return Verdict("not tested", "Nero ran at several learning rates on no task of Table 1")
    finding: Finding = "held" if len(bad) <= 1 else "did not hold"
    if finding == "held" and len(good + bad) < len(paper.TABLE) - 1:
        finding = "undecided"
    return Verdict(finding, "; ".join(good + bad), shared_seeds(rates), ", ".join(sorted(scales)))


@claim(
    *("sgd-unstable", "multi30k", "§5.5, Figure 8"),
    "SGD is unstable on translation and ends with a much worse perplexity.",
    title="Translation: SGD is unstable and much worse",
)
def _sgd_is_unstable(results: Results) -> Verdict:
    """Judge SGD at its best learning rate and at the published one.

    Others do not matter, because every optimizer diverges at some learning rate. If the published one was
    not run, nothing shows that SGD is stable there. If the loss is a mean over words, not a sum, an equal
    rate is larger by their number, and the nearest rates on both sides of it count.
    """
    ran = results.best(OF_PAPER)
    measured = describe(ran, OF_PAPER)
    others = [rate for name, rate in ran.items() if name != "sgd"]
    if "sgd" not in ran or not others:
        return Verdict("not tested", measured)
    seen = [ran["sgd"]]
    published = _published_sgd(results)
    for rate in published:
        if rate.lr != ran["sgd"].lr:
            seen.append(rate)
            place = (
                "lr {:g}, near the published one" if len(published) > 1 else "the published lr {:g}"
            )
            measured += f". SGD at {place.format(rate.lr)}: {in_words(rate)}"
    is_unstable = any(rate.num_diverged or rate.high > UNSTABLE_RATIO * rate.low for rate in seen)
    # An unstable optimizer's seeds are so far apart that no interval excludes zero, so compare ranges.
    is_ahead = any(ran["sgd"].high < other.low for other in others)
    is_behind = all(ran["sgd"].low > other.high for other in others)
    finding: Finding = "undecided"
    # One seed does not show how much seeds differ.
    is_stable = not is_unstable and published and all(rate.num_seeds > 1 for rate in published)
    if is_ahead or is_stable:
        finding = "did not hold"
    elif is_unstable and is_behind and len(ran) == len(OF_PAPER):
        finding = "held"
    pairs = [(other, ran["sgd"]) for other in others]
    return Verdict(finding, measured, shared_seeds([*seen, *others]), pairs=pairs)


def _published_sgd(results: Results) -> list[Rate]:
    """Return SGD at the published learning rate or its equal, or at the nearest two on both sides of it."""
    recipe = results.task.recipes[results.scale]
    (lr,) = paper.scores(results.task.name, "sgd").lr.unique()
    if not recipe.options["summed_loss"]:
        lr *= recipe.batch_size * WORDS_PER_SENTENCE
    tried = results.rates[(results.rates.optimizer == "sgd") & (results.rates.variant == "")].lr
    below, above = tried[tried <= lr].max(), tried[tried >= lr].min()  # NaN if there is none
    found = [results.rate("sgd", each) for each in dict.fromkeys((below, above))]
    return [rate for rate in found if rate] if all(found) else []


@claim(
    *("lamb-pong", "pong", "§5.5, Figure 9"),
    "LAMB with beta1 = 0 does not learn Pong.",
    title="Pong: LAMB without momentum does not learn",
)
def _lamb_fails_on_pong(results: Results) -> Verdict:
    ran = results.best(("nero", "lamb"))
    measured = describe(ran, ("nero", "lamb"))
    if len(ran) < 2:
        return Verdict("not tested", measured)
    finding: Finding = "did not hold" if ran["lamb"].mean > HAS_NOT_LEARNT else "held"
    if finding == "held" and ran["nero"].mean <= HAS_NOT_LEARNT:
        finding = "undecided"
        measured += "; the run was too short for either to learn"
    return Verdict(finding, measured, shared_seeds(ran.values()), pairs=pairs_of("nero", ran))


@claim(
    *("imagenet", "imagenet", "§5.6, Figure 10"),
    "On ImageNet, SGD with weight decay has a lower validation error than Nero out of the box.",
    title="ImageNet: SGD with weight decay is ahead of Nero's default",
)
def _sgd_leads_on_imagenet(results: Results) -> Verdict:
    sgd, nero = results.best(["sgd-momentum"]).get("sgd-momentum"), results.rate("nero", NERO_LR)
    if not sgd or not nero:
        return Verdict("not tested", "needs runs of both, with Nero at its default")
    findings: dict[str, Finding] = {"better": "held", "worse": "did not hold"}
    measured = f"SGD with momentum {best_in_words(sgd)}; Nero {in_words(nero)} at lr {NERO_LR:g}"
    finding = findings.get(against(sgd, nero), "undecided")
    return Verdict(finding, measured, shared_seeds((sgd, nero)), pairs=[(sgd, nero)])
