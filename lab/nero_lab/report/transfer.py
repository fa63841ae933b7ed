"""One learning rate for all sizes and lengths: its gap to the optimizer's own best, by variant."""

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from pandas import DataFrame

from nero.core.presets import find_preset
from nero_lab.report import formatting, heat_map
from nero_lab.report.runs import Results
from nero_lab.report.style import look, order

WORST = 10.0
"""The gap in percent at which the colour scale ends."""

_PRESETS = ("nero-rows", "nero-polar")


def gaps(results: Results) -> DataFrame:
    """Return each learning rate's gap to the best of its optimizer in the same variant, in %.

    The column ``is_one`` marks the learning rate that is kept for all variants: for Nero's presets, their
    default, and for any other optimizer, the one that was best without a variant. ``num_rates`` counts the
    optimizer's learning rates in the variant: with only one, the gap is zero and says nothing. The gap of a
    run that diverged, or was stopped (``is_stopped``), is infinite.
    """
    rates = results.rates[results.rates.num_seeds > 0]
    badness = rates.groupby("line").badness
    best = badness.transform("min")
    one = {name: _one_rate(rates, name) for name in rates.optimizer.unique()}
    gap = 100 * (rates.badness - best) / best.abs()
    return rates[["variant", "optimizer", "lr"]].assign(
        gap=gap.where(np.isfinite(rates.badness), math.inf),
        score=rates["mean"],
        is_one=rates.lr == rates.optimizer.map(one),
        num_rates=badness.transform("size"),
        is_stopped=rates.num_stopped > 0,
    )


def table(results: Results) -> DataFrame:
    """Return the gap between each optimizer's one learning rate and its best there, by variant."""
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
    """Draw one panel per optimizer: variants as rows, learning rates as columns if there are several."""
    shown = gaps(results)
    if shown.empty:
        return
    titles = {variant: _title(results, variant) for variant in _variants(results, shown)}
    compared = shown.assign(gap=shown.gap.where((shown.num_rates > 1) | np.isinf(shown.gap)))
    tables = {
        name: own.pivot(index="variant", columns="lr", values="gap")
        .reindex(list(titles))
        .rename(titles)
        for name, own in compared.groupby("optimizer")
    }
    held = {*zip(shown.optimizer[shown.is_one], shown.lr[shown.is_one], strict=True)}

    def finish(axes: Axes, name: str) -> None:
        for (row, column), gap in np.ndenumerate(tables[name].to_numpy()):
            if 0 < gap < math.inf:
                text = axes.text(column, row, f"{gap:.1f}", ha="center", va="center", fontsize=8)
                text.set_color("white" if gap > 0.7 * WORST else "black")
        for label, lr in zip(axes.get_xticklabels(), tables[name].columns, strict=True):
            label.set(rotation=0, fontweight="bold" if (name, lr) in held else "normal")

    label = "gap to the best learning rate in the row (%)"
    heat_map.draw_panels(tables, path, label=label, worst=WORST, finish=finish)


def _one_rate(rates: DataFrame, name: str) -> float:
    if name in _PRESETS:
        return find_preset(name.removeprefix("nero-")).lr
    plain = rates[(rates.variant == "") & (rates.optimizer == name)]
    return math.nan if plain.empty else float(plain.loc[plain.badness.idxmin(), "lr"])


def _variants(results: Results, shown: DataFrame) -> list[str]:
    """Return the variants that ran, in the task's order; the first is the task without a variant."""
    known = ["", *results.task.variants]
    return [variant for variant in known if (shown.variant == variant).any()]


def _title(results: Results, variant: str) -> str:
    if variant:
        return variant.replace("-", " ")
    recipe = results.task.recipes[results.scale]
    options, steps = recipe.options, recipe.epochs * int(recipe.options["steps_per_epoch"])
    return f"width {options['width']}, layers {options['num_layers']}, steps {steps}"


def _column(shown: DataFrame, name: str) -> str:
    held = [f" at {lr:g}" for lr in shown[(shown.optimizer == name) & shown.is_one].lr.unique()]
    return look(name).title + "".join(held)


def _cell(own: DataFrame) -> str:
    one = own[own.is_one]
    if one.empty:
        return formatting.NOTHING
    (held,) = one.itertuples()
    if math.isinf(held.gap):
        return "stopped, far behind" if held.is_stopped else "diverged"
    if held.num_rates == 1:
        return f"{formatting.number(held.score)}, the only one tried"
    best = own.loc[own.gap.idxmin()]
    beside = f" (best at {best.lr:g})" if held.gap > 0 else ""
    return f"{formatting.number(held.score)}, +{held.gap:.1f}%{beside}"
