"""One rate over sizes and lengths: how far each rate is from the optimiser's own best, by variant."""

import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from pandas import DataFrame

from nero_lab.report import formatting, heat_map
from nero_lab.report.lab import OPTIMIZERS
from nero_lab.report.runs import Results
from nero_lab.report.style import drawn_in_style, look, order

WORST = 10.0
"""Percent; colours do not go further."""

_PRESETS = ("nero-rows", "nero-polar")
_COLUMNS = 2
_ROW = 0.34  # inches


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
    optimizers = sorted(shown.optimizer.unique(), key=order)
    variants = _variants(results, shown)
    num_rows = -(-len(optimizers) // _COLUMNS)
    with drawn_in_style():
        size = (11.0, num_rows * (_ROW * len(variants) + 0.9) + 0.3)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(num_rows, _COLUMNS, squeeze=False, sharey=True)
        for axes, name in zip(panels.flat, optimizers, strict=False):
            own = shown[shown.optimizer == name]
            rates = sorted(own.lr.unique())
            grid = own.pivot(index="variant", columns="lr", values="gap")
            values = grid.reindex(index=variants, columns=rates).to_numpy()
            image = heat_map.draw_panel(axes, values, name, worst=WORST)
            for (row, column), gap in np.ndenumerate(values):
                if 0 < gap < math.inf:
                    colour = "white" if gap > 0.7 * WORST else "black"
                    centred = {"ha": "center", "va": "center", "fontsize": 8}
                    axes.text(column, row, f"{gap:.1f}", color=colour, **centred)
            axes.set_xticks(range(len(rates)), [f"{lr:g}" for lr in rates], fontsize=9)
            for label, lr in zip(axes.get_xticklabels(), rates, strict=True):
                label.set_fontweight("bold" if own.is_one[own.lr == lr].any() else "normal")
            titles = [_title(results, variant) for variant in variants]
            axes.set_yticks(range(len(variants)), titles, fontsize=9)
        for axes in panels.flat[len(optimizers) :]:
            axes.set_visible(False)
        bar = figure.colorbar(image, ax=panels, shrink=0.8, extend="max")
        bar.set_label("worse than its best rate there (%)")
        figure.savefig(path)


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
