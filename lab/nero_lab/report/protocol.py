"""The protocol's runs: a table and sentences for each comparison that has records.

Presets are scored at their default learning rate, all other optimizers at their best.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pandas import DataFrame

from nero_lab.report import formatting
from nero_lab.report.differences import MIN_SEEDS, against, difference, shared_seeds
from nero_lab.report.lab import OPTIMIZERS, PLAN, Comparison, Metric
from nero_lab.report.rates import Rate
from nero_lab.report.runs import Results
from nero_lab.report.style import look

_TITLES = {
    "today": "Presets and today's optimizers",
    "table-1": "The paper's Table 1",
    "constraints": "Constraints, one by one",
    "granularity": "Updates per synapse, neuron and layer",
    "reparameterization": "Reparameterized weights",
    "deep": "A deep MLP",
    "others": "Other recent optimizers",
    "lower": "Presets at lower learning rates",
}
# More seeds and learning rates for the comparisons above, and runs with a figure of their own.
_WITHOUT_TABLE = ("seeds", "twenty-seeds", "published", "default", "transfer")
_FAVOURITES: dict[str, tuple[str, ...]] = {
    "today": ("nero-rows", "nero-polar"),
    "others": ("nero-rows", "nero-polar"),
}


@dataclass(frozen=True)
class Scored:
    """One comparison, with the scores of the optimizers that have one."""

    comparison: Comparison
    metric: Metric
    rates: Mapping[str, Rate]  # by optimizer, in the order of the plan
    num_runs: int

    @property
    def name(self) -> str:
        """The kind of comparison: the first part of its key."""
        return self.comparison.key.partition("/")[0]

    @property
    def title(self) -> str:
        """The heading."""
        variant = self.comparison.variant
        return _TITLES[self.name] + (f" ({variant})" if variant else "")

    @property
    def ranked(self) -> list[Rate]:
        """The scores, best first."""
        return sorted(self.rates.values(), key=lambda rate: rate.badness)

    @property
    def missing(self) -> list[str]:
        """The optimizers without a score."""
        names = [entrant.optimizer for entrant in self.comparison.entrants]
        return [look(name).title for name in names if name not in self.rates]

    @property
    def pairs(self) -> list[tuple[Rate, Rate]]:
        """Each favourite with each rival; without favourites, Nero or else the leader is the favourite."""
        leader = "nero" if "nero" in self.rates else self.ranked[0].optimizer
        names = _FAVOURITES.get(self.name, (leader,))
        favourites = [self.rates[name] for name in names if name in self.rates]
        rivals = [rate for name, rate in self.rates.items() if name not in names]
        return [(favourite, rival) for favourite in favourites for rival in rivals]


def scored(results: Mapping[str, Results]) -> dict[str, list[Scored]]:
    """Return the comparisons of the plan that have scores, by task, from results at their scale."""
    found: dict[str, list[Scored]] = {}
    for comparison in PLAN:
        own = results.get(comparison.task)
        if own is not None and not comparison.key.startswith(_WITHOUT_TABLE):
            one = _scored(comparison, own)
            if one.rates and one.pairs:
                found.setdefault(comparison.task, []).append(one)
    return found


def table(found: Scored) -> DataFrame:
    """Return one row per optimizer, best first."""
    return DataFrame(
        {
            "optimizer": look(rate.optimizer).title,
            "lr": f"{rate.lr:g}" + (f" ({fixed})" if (fixed := _fixed(found, rate)) else ""),
            "lrs tried": _rates_tried(found, rate),
            "seeds": str(rate.num_seeds),
            f"{found.metric.label}, mean": formatting.mean(rate),
            "range": formatting.spread(rate),
        }
        for rate in found.ranked
    )


def sentences(found: Scored) -> list[str]:
    """Return one sentence per favourite and rival."""
    return [_sentence(found, favourite, rival) for favourite, rival in found.pairs]


def in_short(found: Scored) -> str:
    """Write the scores, best first, and their number of seeds."""
    words = "; ".join(f"{look(r.optimizer).title} {formatting.mean(r)}" for r in found.ranked)
    counts = [rate.num_seeds for rate in found.rates.values()]
    return f"{words} ({formatting.seeds_between(counts)})"


def _scored(comparison: Comparison, results: Results) -> Scored:
    variant = comparison.variant or ""
    names = [entrant.optimizer for entrant in comparison.entrants]
    rates = results.best(names, variant)
    for entrant in comparison.entrants:
        if entrant.default is not None:
            rate = results.rate(entrant.optimizer, entrant.default, variant)
            rates.pop(entrant.optimizer, None)
            if rate is not None:
                rates[entrant.optimizer] = rate
    ordered = {name: rates[name] for name in names if name in rates}
    runs = results.runs
    is_own = runs.optimizer.isin(names) & (runs.variant == variant)
    return Scored(comparison, results.metric, ordered, int(is_own.sum()))


def _fixed(found: Scored, rate: Rate) -> str:
    """Say that a learning rate was fixed in advance; empty if it is the best of several."""
    (entrant,) = (e for e in found.comparison.entrants if e.optimizer == rate.optimizer)
    if entrant.default is None:
        return ""
    return "default" if rate.lr == OPTIMIZERS[rate.optimizer].lr else "fixed"


def _rates_tried(found: Scored, rate: Rate) -> str:
    fixed = _fixed(found, rate)
    if fixed:
        return f"1 ({fixed})"
    end = f" (best: {rate.end_of_rates})" if rate.end_of_rates else ""
    return f"{rate.num_rates}{end}"


def _sentence(found: Scored, favourite: Rate, rival: Rate) -> str:
    """Say which optimizer is ahead, by how much, how certain that is, and over how many runs."""
    first, second = (look(rate.optimizer).title for rate in (favourite, rival))
    for name, rate in ((first, favourite), (second, rival)):
        if rate.num_diverged:
            return f"{first} against {second}: not compared ({name}: {formatting.diverged(rate)})."
    outcome, gain = against(favourite, rival), difference(favourite, rival)
    if not gain.num_seeds:
        return f"{first} and {second} have no seed in common."
    scale = 100 / abs(rival.mean) * (-1 if outcome == "worse" else 1)
    by = _percent(gain.mean * scale)
    verb = {"better": f"{by} ahead of {second}", "worse": f"{by} behind {second}"}
    said = f"{first}: {verb.get(outcome, f'no clear difference from {second}, {by}')}"
    if gain.num_seeds > 1:
        low, high = sorted((gain.low * scale, gain.high * scale))
        said += f" (95% interval {_percent(low)} to {_percent(high)})"
    seeds = formatting.seeds(shared_seeds((favourite, rival)))
    if gain.num_seeds == 1:
        seeds += ", so no interval"
    elif gain.num_seeds < MIN_SEEDS:
        seeds += ", so at most a tendency"
    return f"{said}; {seeds}; {_chosen(found, favourite)} against {_chosen(found, rival)}."


def _chosen(found: Scored, rate: Rate) -> str:
    fixed = _fixed(found, rate)
    if fixed:
        return fixed if fixed == "default" else f"lr {rate.lr:g}"
    return f"best of {rate.num_rates} learning rate{'s' if rate.num_rates > 1 else ''}"


def _percent(value: float) -> str:
    return f"{value:.1f}%".replace("-", formatting.MINUS)
