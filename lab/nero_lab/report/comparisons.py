"""Which optimizers each claim, table and picture compares."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from pandas import DataFrame

from nero_lab.report import paper
from nero_lab.report.formatting import slug
from nero_lab.report.lab import TASKS
from nero_lab.report.runs import Results
from nero_lab.report.style import Look, look, variant_look

RIVALS = ("sgd", "adam", "lamb")
"""The optimizers that the paper compares Nero with throughout section 5.5."""

OF_PAPER = ("nero", *RIVALS)

OTHER_LAMBS = ("lamb-clamped", "lamb-momentum")
"""LAMB as in the authors' code, and as it learned Pong for them: drawn if it ran, but not judged."""

CONSTRAINTS = ("nero-none", "nero-mean", "nero-norm", "nero")
"""Section 5.1: Nero with neither constraint, with either one, and with both."""

RELATIVE_FREE = ("madam", "nero-none", "lamb")
"""Section 5.2: updates per synapse, per neuron and per layer, without constraints."""

RELATIVE_BALANCED = ("madam-balanced", "nero", "lamb-balanced")
"""The same with constraints."""

REPARAMETERISED = {"adam-momentum": "Adam (beta1 = 0.9)", "adam": "Adam (beta1 = 0)"}
"""Section 5.3 says only "Adam"; the authors' code uses torch's default beta1 = 0.9."""

MODERN_RIVALS = (
    *("nero-rows", "nero-polar", "adamw", "muon", "normuon"),
    *("soap", "schedule-free", "prodigy", "sgd-momentum"),
)
"""Current optimizers, including Nero with a preset."""

_GRANULARITIES = "updates per synapse (Madam), per neuron (Nero) and per layer (LAMB)"

_WITHOUT, _WITH = f"{_GRANULARITIES}, without constraints", f"{_GRANULARITIES}, with constraints"

# A task's pictures: name, title, its optimizers, and those of which at least one must have run.
_PICTURES = (
    ("constraints", "Nero's constraints, one by one", CONSTRAINTS, ("nero-mean", "nero-norm")),
    ("relative-without", _WITHOUT, RELATIVE_FREE, ("nero-none",)),
    ("relative-with", _WITH, RELATIVE_BALANCED, ("madam-balanced", "lamb-balanced")),
    ("rivals", "Nero and the paper's rivals", (*OF_PAPER, *OTHER_LAMBS), RIVALS),
    ("modern", "Nero and today's optimizers", ("nero", *MODERN_RIVALS), MODERN_RIVALS),
)
_FIGURES = {
    ("cifar-vgg11", "constraints"): "Figure 1",
    ("cifar-vgg11", "relative-without"): "Figure 2, top",
    ("cifar-vgg11", "relative-with"): "Figure 2, bottom",
    ("cifar-vgg11", "rivals"): "Figure 6, top",
}
TRANSFER = ("shakespeare-transfer",)
"""Tasks whose variants are sizes and lengths, all shown in one map."""

# Tasks that compare variants rather than optimizers, by step rather than by epoch.
_BY_VARIANT = ("mnist-reparam",)
# Tasks with few optimizers, all in one picture.
_WHOLE = ("minilm-captions",)


@dataclass(frozen=True)
class Picture:
    """One picture of a task."""

    name: str
    title: str
    figure: str  # the paper's figure, or ""
    results: Results
    rates: DataFrame  # rows of the table of learning rates, in legend order
    by_step: bool = False

    @property
    def tracks(self) -> list[Any]:
        """The rows that have a curve: each optimizer's best learning rate, and Nero's default."""
        return list(shown(self.rates).itertuples())

    @property
    def legends(self) -> list[str]:
        """The legend's texts."""
        return [self.legend_of(track) for track in self.tracks]

    @property
    def runs(self) -> DataFrame:
        """All runs of the picture's optimizers, at all learning rates."""
        return self.results.runs_of(self.rates)

    @property
    def has_lost_runs(self) -> bool:
        """Whether a run that has a curve diverged or failed."""
        runs = self.results.runs_of(shown(self.rates))
        return bool((~np.isfinite(runs.score) & runs.end_epoch.notna()).any())

    @property
    def has_rates(self) -> bool:
        """Whether there is a learning-rate panel: any optimizer ran at several."""
        return not self.by_step and bool((self.rates.num_rates > 1).any())

    @property
    def metrics(self) -> list[str]:
        """The task's metric, preceded by its training counterpart if that was recorded."""
        name = self.results.task.metric.name
        if self.by_step or not name.startswith("valid_"):
            return [name]
        counterpart, epochs = "train_" + name.removeprefix("valid_"), self.results.records.epochs
        if counterpart not in epochs:
            return [name]
        recorded = epochs[counterpart][epochs.run.isin(self.results.runs.index)].notna().any()
        return [counterpart, name] if recorded else [name]

    @property
    def has_authors(self) -> bool:
        """Whether the authors published the same curves."""
        task = self.results.task.name
        published = [not paper.best_curves(task, name).empty for name in self.metrics]
        return self.name in ("rivals", "variants") and all(published)

    def look_of(self, track: Any) -> Look:
        """Return a track's look, by variant if the picture compares several."""
        compares = self.rates.variant.nunique() > 1
        return variant_look(track.optimizer, track.variant if compares else "")

    def legend_of(self, track: Any) -> str:
        """Return a track's legend text: optimizer, learning rate, and runs that diverged."""
        text = f"{self.look_of(track).title}, lr {track.lr:g}"
        if not track.is_best:
            text += " (out of the box)"
        runs = self.results.runs_of(track)
        diverged = runs[np.isinf(runs.score)]
        if len(diverged):
            epochs = ", ".join(str(math.ceil(epoch)) for epoch in diverged.end_epoch)
            some = "" if track.num_seeds == 1 else f"{len(diverged)} of {track.num_seeds} "
            text += f": {some}diverged at epoch {epochs}"
        return text + (f" ({track.not_counted})" if track.not_counted else "")


def shown(rates: DataFrame) -> DataFrame:
    """Return the rows with each optimizer's best learning rate and, if it differs, Nero's default."""
    lines = dict.fromkeys(rates.line)
    ranked = rates.assign(line=rates.line.map(list(lines).index))[rates.is_best | rates.is_default]
    return ranked.sort_values(["line", "is_best"], ascending=[True, False])


def pictures(results: Results) -> list[Picture]:
    """Return the pictures that a task's runs allow; for the lab's own tasks, those of the paper."""
    if results.task.name in TRANSFER:
        return []
    if results.task.name in _BY_VARIANT:
        return _by_variant(results)
    is_split = results.task.name in TASKS and results.task.name not in _WHOLE
    found = []
    for variant, rates in results.rates.groupby("variant"):
        rates = rates.set_index("optimizer", drop=False)
        drawn: set[str] = set()
        for name, title, optimizers, needs in _PICTURES if is_split else ():
            if rates.index.isin(needs).any():
                drawn |= set(optimizers)
                found.append(_picture(results, name, title, variant, _of(rates, optimizers)))
        rest = [name for name in rates.index.unique() if name not in drawn]
        if rest:
            rest = ["nero", *rest] if "nero" in drawn else rest
            title = results.task.title
            found.append(_picture(results, "others", title, variant, _of(rates, rest)))
    return found


def _of(rates: DataFrame, optimizers: tuple[str, ...] | list[str]) -> DataFrame:
    return rates.loc[[name for name in optimizers if name in rates.index]].reset_index(drop=True)


def _by_variant(results: Results) -> list[Picture]:
    """Return a picture to compare with the authors', and one of the optimizers missing from theirs."""
    rates, task = results.rates, results.task
    first = next((name for name in REPARAMETERISED if (rates.optimizer == name).any()), "")
    is_main = rates.optimizer.isin(["nero", first])
    main, rest = rates[is_main], rates[~is_main]
    names = [REPARAMETERISED.get(name, look(name).title) for name in rest.optimizer.unique()]
    title = f"{task.title}: {' and '.join(names)}"
    found = [
        Picture("variants", task.title, task.figure, results, main, by_step=True),
        Picture("variants-others", title, "", results, rest, by_step=True),
    ]
    return [picture for picture in found if len(picture.rates)]


def _picture(results: Results, name: str, title: str, variant: str, rates: DataFrame) -> Picture:
    in_paper = results.task.figure if name == "rivals" else ""
    figure = _FIGURES.get((results.task.name, name), in_paper)
    if variant:
        return Picture(f"{name}-{slug(variant)}", f"{title} ({variant})", figure, results, rates)
    return Picture(name, title, figure, results, rates)
