"""Tables of a task, and of all tasks."""

from collections.abc import Mapping, Sequence

from nero_lab.engine.task import Task
from nero_lab.report import lineups, wording
from nero_lab.report.paper import TABLE, best_curves, published
from nero_lab.report.pictures import Picture
from nero_lab.report.results import Arm, Line, TaskResults
from nero_lab.report.style import look

SCORE_HEADER = ("optimiser", "lr", "seeds", "mean", "range")
COST_HEADER = ("time per step", "peak memory", "optimiser's state")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def final_table(results: TaskResults) -> str:
    """Return the scores at the best rates, what the paper has, and what a step costs."""
    rows = []
    for line in results.lines:
        source = wording.NOTHING if line.variant else published_text(results.task, line.optimizer)
        for arm in line.shown:
            cells = _score_cells(line, arm)
            if arm is not line.best:
                cells[0] += " (out of the box)"
            rows.append([*cells, str(len(line.rates)), source, *_cost_cells(arm)])
    return table((*SCORE_HEADER, "rates tried", "published", *COST_HEADER), rows)


def all_rates_table(results: TaskResults) -> str:
    """Return the scores at every rate."""
    rows = [_score_cells(line, arm) for line in results.lines for arm in line.arms.values()]
    return table(SCORE_HEADER, rows)


def summary_table(tasks: Mapping[str, Task], results: Mapping[str, TaskResults]) -> str:
    """Return paper and measurement below each other, for every task with published scores."""
    header = ("task", "metric", "whose", *(look(name).title for name in lineups.OF_PAPER))
    rows: list[list[str]] = []
    for name in (task for task in ("mnist-deep", *TABLE) if task in tasks):
        task = tasks[name]
        row, best = [], _best_published(task)
        for optimizer in lineups.OF_PAPER:
            text = published_text(task, optimizer, with_ablation=False)
            row.append(f"**{text}**" if optimizer == best else text)
        rows.append([name, task.metric.label, "paper", *row])
        found = results.get(name)
        if found is None:
            rows.append(["", "", "ours", *["not run"] * len(lineups.OF_PAPER)])
            continue
        scores = {optimizer: found.score(optimizer) for optimizer in lineups.OF_PAPER}
        ran = {optimizer: score for optimizer, score in scores.items() if score}
        first = min(ran, key=lambda optimizer: ran[optimizer].badness, default=None)
        row = []
        for optimizer, line in found.pick(lineups.OF_PAPER).items():
            text = wording.best_in_words(line) if line else "not run"
            row.append(f"**{text}**" if optimizer == first else text)
        rows.append(["", "", f"ours, {found.scale} scale, {wording.parameters(found)}", *row])
    return table(header, rows)


def published_text(task: Task, optimizer: str, *, with_ablation: bool = True) -> str:
    """Return what the paper gives for an optimiser, with its rate."""
    found = [
        f"{entry.metric} {entry.mean:.2f} ± {entry.spread:.2f} at lr {entry.lr:g}".strip().replace(
            "-", wording.MINUS
        )
        + (" (ablation)" if entry.where == "ablation" else "")
        for entry in published(task, optimizer)
        if with_ablation or entry.where != "ablation"
    ]
    if not found:
        found = [
            f"{wording.number(curve.mean[-1])} ({wording.number(curve.low[-1])} to "
            f"{wording.number(curve.high[-1])}) at lr {curve.lr:g}"
            for curve in best_curves(task, task.metric.name)
            if curve.optimizer == optimizer and not curve.variant
        ]
    return "; ".join(found) or wording.NOTHING


def commands(picture: Picture) -> list[str]:
    """Return the commands of every run of a picture, also at the rates that were not best."""
    runs = (run for line in picture.lines for arm in line.arms.values() for run in arm.runs)
    return list(dict.fromkeys(run.config["command"] for run in runs))


def _best_published(task: Task) -> str | None:
    curves = {curve.optimizer: curve.mean[-1] for curve in best_curves(task, task.metric.name)}
    means = {
        optimizer: entries[0].mean
        for optimizer in lineups.OF_PAPER
        if (entries := published(task, optimizer))
    } or curves
    choose = max if task.metric.higher_is_better else min
    return choose(means, key=lambda optimizer: means[optimizer]) if means else None


def _score_cells(line: Line, arm: Arm) -> list[str]:
    title = look(line.optimizer).title + (f" ({line.variant})" if line.variant else "")
    score = arm.score
    count = str(score.num_seeds if score else 0)
    if arm.not_counted:
        count += f" (+{arm.not_counted})"
    return [title, f"{arm.lr:g}", count, wording.mean(score), wording.spread(score)]


def _cost_cells(arm: Arm) -> list[str]:
    return [
        wording.duration(arm.end("clock", "seconds_per_step")),
        wording.size(arm.end("clock", "peak_memory_bytes")),
        wording.size(arm.end("optimizer_state_bytes")),
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
