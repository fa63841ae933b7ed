"""The report's tables: data frames of text."""

import math
from collections.abc import Mapping, Sequence

from pandas import DataFrame

from nero_lab.report import comparisons, formatting, protocol
from nero_lab.report.differences import MIN_SEEDS, against, difference, shared_seeds
from nero_lab.report.lab import TASKS, Task
from nero_lab.report.paper import TABLE, best_curves, scores
from nero_lab.report.protocol import Scored
from nero_lab.report.rates import NERO_LR, Rate
from nero_lab.report.recipes import num_parameters
from nero_lab.report.runs import Records, Results
from nero_lab.report.style import look, variant_look
from nero_lab.report.verdicts import Claim, Verdict

MODERN_TASK = "shakespeare"
"""The task on which Nero is compared with today's optimizers."""


def in_short(verdict: Verdict) -> str:
    """Write the scores that a claim compares, best first, or what was measured if it compares none."""
    rates = {id(rate): rate for pair in verdict.pairs for rate in pair}.values()
    ordered = sorted(rates, key=lambda rate: rate.badness)
    listed = "; ".join(f"{_title(rate)} {formatting.mean(rate)}" for rate in ordered)
    return listed or verdict.measured


def pairs_table(verdicts: Mapping[Claim, Verdict]) -> DataFrame:
    """Return every comparison of every claim: two scores, their learning rates, and the difference."""
    rows = []
    for claim, verdict in verdicts.items():
        for favourite, rival in verdict.pairs:
            has_lost = favourite.num_diverged or rival.num_diverged
            gain = "" if has_lost else formatting.advantage(difference(favourite, rival))
            rows.append(
                {
                    "claim": claim.title,
                    "favourite": f"{_title(favourite)}: {formatting.best_in_words(favourite)}",
                    "rival": f"{_title(rival)}: {formatting.best_in_words(rival)}",
                    "favourite's advantage": gain or formatting.NOTHING,
                    "pairwise, at 95%": _alone(favourite, rival),
                }
            )
    return DataFrame(rows)


def _title(rate: Rate) -> str:
    return variant_look(rate.optimizer, rate.variant).title


def _alone(favourite: Rate, rival: Rate) -> str:
    """Write what one comparison says by itself; a verdict on several rivals needs wider intervals."""
    found = against(favourite, rival)
    is_leaning = found != "inconclusive" and shared_seeds((favourite, rival)) < MIN_SEEDS
    return f"probably {found}" if is_leaning else found


def final_table(results: Results) -> DataFrame:
    """Return the scores at the best learning rates, the paper's scores, and the cost of a step."""
    published = "published (validation)" if results.is_tested else "published"
    table = DataFrame(
        {
            **_score_cells(rate, is_default=not rate.is_best),
            "lrs tried": str(rate.num_rates),
            published: formatting.NOTHING
            if rate.variant
            else published_text(results.task, rate.optimizer),
            "time per step": formatting.duration(
                results.step_seconds(rate.variant).get(rate.optimizer, math.nan)
            ),
            "peak memory": formatting.size(rate.peak_memory_bytes),
            "optimizer state": formatting.size(rate.optimizer_state_bytes),
        }
        for rate in comparisons.shown(results.rates).itertuples()
    )
    if (table["time per step"] == formatting.NOTHING).all():
        table = table.drop(columns="time per step")
    return table if results.task.name in TASKS else table.drop(columns=published)


def all_rates_table(results: Results) -> DataFrame:
    """Return the scores at every learning rate."""
    return DataFrame(map(_score_cells, results.rates.itertuples()))


def _score_cells(rate: Rate, is_default: bool = False) -> dict[str, str]:
    title = look(rate.optimizer).title + (f" ({rate.variant})" if rate.variant else "")
    return {
        "optimizer": title + (" (out of the box)" if is_default else ""),
        "lr": f"{rate.lr:g}",
        "seeds": str(rate.num_seeds) + (f" (+{rate.not_counted})" if rate.not_counted else ""),
        "mean": formatting.mean(rate),
        "range": formatting.spread(rate),
    }


def summary_table(tasks: Mapping[str, Task], *all_results: Mapping[str, Results]) -> DataFrame:
    """Return the paper's scores and those of each of ours, for every task with published scores."""
    rows = []
    for name in filter(tasks.__contains__, ("mnist-deep", *TABLE)):
        task = tasks[name]
        theirs = {other: published_text(task, other, "Table 1") for other in comparisons.OF_PAPER}
        theirs[_best_published(task)] = f"**{theirs[_best_published(task)]}**"
        rows.append({"task": name, "metric": task.metric.label, "source": "paper", **theirs})
        by_scale = {each[name].scale: each[name] for each in all_results if name in each}
        rows += list(filter(None, map(_summary_row, by_scale.values()))) or [_NOT_RUN]
    return DataFrame(rows).rename(columns={name: look(name).title for name in comparisons.OF_PAPER})


_NOT_RUN = {
    "task": "",
    "metric": "",
    "source": "ours",
    **dict.fromkeys(comparisons.OF_PAPER, "not run"),
}


def _summary_row(found: Results) -> dict[str, str] | None:
    """Return our best scores of the paper's optimizers, if any of them ran."""
    ran = found.best(comparisons.OF_PAPER)
    if not ran:
        return None
    best = min(rate.badness for rate in ran.values())
    texts = {name: formatting.best_in_words(rate) for name, rate in ran.items()}
    return {
        **_NOT_RUN,
        "metric": found.metric.label if found.is_tested else "",
        "source": f"ours, {found.scale} scale, {num_parameters(found)}",
        **{n: f"**{text}**" if ran[n].badness == best else text for n, text in texts.items()},
    }


def published_text(task: Task, optimizer: str, table: str = "") -> str:
    """Return an optimizer's scores in one of the paper's tables, or in all, with the learning rate."""
    found = [
        ("FID " if entry.metric == "FID" else "")
        + f"{entry.mean:.2f} ± {entry.spread:.2f} at lr {entry.lr:g}".replace("-", formatting.MINUS)
        + (" (ablation)" if entry.table == "ablation" else "")
        for entry in scores(task.name, optimizer).itertuples()
        if table in ("", entry.table)
    ]
    if not found:
        found = [
            f"{formatting.number(end.mean)} ({formatting.number(end.low)} to "
            f"{formatting.number(end.high)}) at lr {end.lr:g}"
            for end in _last_points(task).itertuples()
            if end.optimizer == optimizer
        ]
    return "; ".join(found) or formatting.NOTHING


def _last_points(task: Task) -> DataFrame:
    """Return the last points of the authors' curves by optimizer, except those that compare variants."""
    curves = best_curves(task.name, task.metric.name).query("variant == ''")
    return curves.groupby("optimizer").tail(1)


def _best_published(task: Task) -> str:
    table = scores(task.name).query("table == 'Table 1'")
    means = (_last_points(task) if table.empty else table).set_index("optimizer")["mean"]
    return str(means.idxmax() if task.metric.higher_is_better else means.idxmin())


def overview_table(
    tasks: Mapping[str, Task],
    results: Mapping[str, Results],
    scored: Mapping[str, Sequence[Scored]],
) -> DataFrame:
    """Return one row per task: a link to its page, and the best optimizers in each kind of run."""
    rows = []
    for name, task in tasks.items():
        found = results.get(name)
        own = scored.get(name, [])
        told = f"{found.scale}: {_leaders(found)}" if found else "recipe only"
        rows.append(
            {
                "task": f"[{formatting.capitalised(task.title)}](task-{name.replace(':', '.')}.md)",
                "score": task.metric.label,
                "best runs": told,
                "protocol runs (mini)": protocol.in_short(own[0]) if own else formatting.NOTHING,
            }
        )
    table = DataFrame(rows)
    return table if scored else table.drop(columns="protocol runs (mini)")


def _leaders(results: Results, num_shown: int = 3) -> str:
    """Write the best optimizers without a variant or, if there are none, of the largest variant."""
    names = results.rates.optimizer.unique()
    variants = ("", *results.rates.variant.value_counts().index)
    ran = next((found for v in variants if (found := results.best(names, v))), {})
    ordered = sorted(ran.values(), key=lambda rate: rate.badness)[:num_shown]
    counts = [rate.num_seeds for rate in ordered]
    if not counts:
        return "no run has finished"
    words = "; ".join(f"{_title(rate)} {formatting.mean(rate)}" for rate in ordered)
    return f"{words} ({formatting.seeds_between(counts)})"


def hours_table(records: Records) -> DataFrame:
    """Return the number of runs and the machine time by task and scale."""
    found = records.runs.groupby(["task", "scale"], sort=False).seconds
    return DataFrame(
        {
            "task": task,
            "scale": scale,
            "runs": str(len(seconds)),
            "median run": formatting.duration(seconds.median()),
            "total hours": f"{seconds.sum() / 3600:.2f}",
        }
        for (task, scale), seconds in found
    )


def modern_table(results: Results) -> DataFrame:
    """Compare Nero's default with today's optimizers, and Nero, at their best learning rates."""
    default = results.rate("nero", NERO_LR)
    rows = []
    for name, rival in results.best(("nero", *comparisons.MODERN_RIVALS)).items():
        if default is None or rival.is_default:
            continue
        title = "Nero, tuned" if name == "nero" else look(name).title
        diverged = [formatting.diverged(rival)] if rival.num_diverged else []
        if default.num_diverged:
            diverged.insert(0, f"Nero's default: {formatting.diverged(default)}")
        rows.append(
            {
                "rival": f"{title}, lr {rival.lr:g}",
                "lrs tried": str(rival.num_rates),
                "rival's best score": formatting.in_words(rival),
                "advantage of Nero's default": "; ".join(diverged)
                or formatting.advantage(difference(default, rival)),
                "result for Nero's default": against(default, rival),
            }
        )
    return DataFrame(rows)
