"""One rate over sizes and lengths: how far each rate is from the optimiser's own best, by variant."""

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from pandas import DataFrame

from nero_lab.report import formatting, heat_map
from nero_lab.report.lab import OPTIMIZERS
from nero_lab.report.runs import Results
from nero_lab.report.style import look, order

WORST = 10.0
"""Percent; colours do not go further."""

_PRESETS = ("nero-rows", "nero-polar")


def gaps(results: Results) -> DataFrame:
    """Return how much worse each rate is than the best of its optimiser in the same variant, in %.

    The column ``is_one`` marks the rate that is held over all variants: the default of one of Nero's
    presets, and of any other optimiser the rate that was best without a variant.
    """
    rates = results.rates[results.rates.num_seeds > 0]
    best = rates.groupby("line").badness.transform("min")
    one = {name: _one_rate(own) for name, own in rates.groupby("optimizer")}
    gap = 100 * (rates.badness - best) / best.abs()
    return rates[["variant", "optimizer", "lr"]].assign(
        gap=gap.where(np.isfinite(rates.badness), math.inf),
        score=rates["mean"],
        is_one=rates.lr == rates.optimizer.map(one),
    )


def table(results: Results) -> DataFrame:
    """Return by variant what the one rate of each optimiser loses against its best rate there."""
    shown = gaps(results)
    optimizers = sorted(shown.optimizer.unique(), key=order)
    rows = []
    for variant in _variants(results, shown):
        cells = {"network": _title(results, variant)}
        for name in optimizers:
            own = shown[(shown.variant == variant) & (shown.optimizer == name)]
            cells[_column(shown, name)] = _cell(own)
        rows.append(cells)
    return DataFrame(rows)


def draw(results: Results, path: Path) -> None:
    """Draw a panel for each optimiser: variants below each other, rates beside each other."""
    shown = gaps(results)
    if shown.empty:
        return
    titles = {variant: _title(results, variant) for variant in _variants(results, shown)}
    tables = {
        name: own.pivot(index="variant", columns="lr", values="gap")
        .reindex(list(titles))
        .rename(titles)
        for name, own in shown.groupby("optimizer")
    }
    held = {*zip(shown.optimizer[shown.is_one], shown.lr[shown.is_one], strict=True)}

    def finish(axes: Axes, name: str) -> None:
        for (row, column), gap in np.ndenumerate(tables[name].to_numpy()):
            if 0 < gap < math.inf:
                text = axes.text(column, row, f"{gap:.1f}", ha="center", va="center", fontsize=8)
                text.set_color("white" if gap > 0.7 * WORST else "black")
        for label, lr in zip(axes.get_xticklabels(), tables[name].columns, strict=True):
            label.set(rotation=0, fontweight="bold" if (name, lr) in held else "normal")

    label = "worse than its best rate there (%)"
    heat_map.draw_panels(tables, path, label=label, worst=WORST, finish=finish)


def _one_rate(rates: DataFrame) -> float:
    name, plain = rates.optimizer.iloc[0], rates[rates.variant == ""]
    if name in _PRESETS:
        return OPTIMIZERS[name].lr
    return math.nan if plain.empty else float(plain.loc[plain.badness.idxmin(), "lr"])


def _variants(results: Results, shown: DataFrame) -> list[str]:
    """Return the variants that were run, in the order of the task, which begins without any."""
    known = ["", *results.task.variants]
    return [variant for variant in known if (shown.variant == variant).any()]


def _title(results: Results, variant: str) -> str:
    if variant:
        return variant.replace("-", " ")
    recipe = results.task.recipes[results.scale]
    steps = recipe.epochs * recipe.options["steps_per_epoch"]
    return f"width {recipe.options['width']}, layers {recipe.options['num_layers']}, steps {steps}"


def _column(shown: DataFrame, name: str) -> str:
    rate = shown[(shown.optimizer == name) & shown.is_one].lr
    return f"{look(name).title} at {rate.iloc[0]:g}" if len(rate) else look(name).title


def _cell(own: DataFrame) -> str:
    one = own[own.is_one]
    if one.empty:
        return formatting.NOTHING
    (held,) = one.itertuples()
    if math.isinf(held.gap):
        return "diverged"
    best = own.loc[own.gap.idxmin()]
    beside = f" (best at {best.lr:g})" if held.gap > 0 else ""
    return f"{formatting.number(held.score)}, +{held.gap:.1f} %{beside}"
