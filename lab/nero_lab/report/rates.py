"""The table of learning rates: one row per optimizer and learning rate, with its score over seeds.

A score is the value of the task's metric after the last epoch, as in the paper, or on the test split if
all runs have test scores. The best learning rate is always chosen by the former. A run that diverged or
was stopped has no score and counts as infinitely bad.
"""

from typing import Any

import numpy as np
from pandas import DataFrame, Series

NERO_LR = 0.01
"""Nero's learning rate "out of the box", on every task."""

Rate = Any
"""A row of the table, as ``itertuples`` gives it."""

_LINE = ["variant", "place", "optimizer"]  # the columns that define one line of a figure


def rates_table(runs: DataFrame) -> DataFrame:
    """Group a task's runs by variant, optimizer and learning rate, in table order.

    The columns are the ``values`` of completed runs, one per seed, infinite if the run diverged. Then come
    their ``mean``, ``low``, ``high``, ``badness`` (the mean, with its sign set so that lower is better) and
    ``badness_by_seed``. ``num_seeds`` and ``num_diverged`` count runs; ``num_stopped`` counts the diverged
    runs that were stopped for being far behind. ``not_counted`` says how many failed or may still be
    running. Costs are medians. ``is_best`` and ``is_default`` mark the best learning rate and Nero's
    default. ``num_rates`` counts the optimizer's learning rates with a score, and ``end_of_rates`` says
    whether the best one is the smallest or the largest.
    """
    costs = ("peak_memory_bytes", "optimizer_state_bytes")
    statistics = {"num_seeds": "count", "mean": "mean", "low": "min", "high": "max"}
    grouped = runs.groupby([*_LINE, "lr"])
    rates = grouped.agg(
        **{name: ("score", statistic) for name, statistic in statistics.items()},
        badness=("badness", "mean"),
        values=("score", lambda scores: tuple(scores.dropna())),
        num_diverged=("score", lambda scores: np.isinf(scores).sum()),
        num_stopped=("status", lambda statuses: (statuses == "stopped").sum()),
        **{cost: (cost, "median") for cost in costs},
    )
    rates["not_counted"] = [_not_counted(group) for _, group in grouped]
    rates["badness_by_seed"] = [
        dict(zip(done.seed, done.badness, strict=True))
        for done in (group[group.score.notna()] for _, group in grouped)
    ]
    rates = rates.reset_index()
    rates["is_default"] = (rates.optimizer == "nero") & (rates.lr == NERO_LR)
    rates["line"] = rates.groupby(_LINE).ngroup()
    best = rates.line.map(Series([_best_rate(line) for _, line in runs.groupby(_LINE)]))
    rates["is_best"] = rates.lr == best
    scored = rates.lr.where(rates.num_seeds > 0).groupby(rates.line)
    rates["num_rates"] = scored.transform("count")
    is_smallest, is_largest = best == scored.transform("min"), best == scored.transform("max")
    ends = np.select([is_smallest, is_largest], ["smallest", "largest"], "")
    rates["end_of_rates"] = np.where(rates.num_rates > 1, ends, "")
    return rates


def _best_rate(line: DataFrame) -> float:
    """Return an optimizer's best learning rate: fewest diverged runs, then the best mean of the others.

    As in the paper, learning rates are compared over the seeds that all of them share, so that none is
    chosen because of a single lucky run. The winner is then compared over all of its seeds with the others
    that have these seeds too. If there are no scores, the longest run wins.
    """
    done = line[line.is_done] if line.is_done.any() else line
    seeds = done.groupby("lr").seed.agg(frozenset)
    first = _best_by(done, frozenset.intersection(*seeds))
    have_as_many = [lr for lr in seeds.index if seeds[lr] >= seeds[first]]
    return _best_by(done[done.lr.isin(have_as_many)], seeds[first])


def _best_by(done: DataFrame, seeds: frozenset[int]) -> float:
    """Return the best learning rate over these seeds, or over all if there are none."""
    compared = (done[done.seed.isin(seeds)] if seeds else done).groupby("lr").valid_badness
    ranks = DataFrame(
        {
            "diverged": compared.agg(lambda badness: np.isinf(badness).sum()),
            "badness": compared.agg(lambda badness: badness[np.isfinite(badness)].mean()),
            "brevity": -done.groupby("lr").num_epochs.max(),
        }
    ).dropna(subset="diverged")
    return float(ranks.sort_values(list(ranks)).index[0])


def _not_counted(runs: DataFrame) -> str:
    counts = runs.status[~runs.is_done].value_counts().sort_index()
    return ", ".join(f"{count} {status}" for status, count in counts.items())
