"""Tables of a task, and of all tasks."""

from collections.abc import Mapping, Sequence

from nero_lab.report import wording
from nero_lab.report.paper import TABLE_TASKS, best_curves, published
from nero_lab.report.pictures import Picture
from nero_lab.report.results import NERO_LR, Arm, Line, TaskResults
from nero_lab.report.style import look
from nero_lab.task import Task

SCORE_HEADER = ("optimiser", "lr", "seeds", "mean", "range", "published")
COST_HEADER = ("time per step", "peak memory", "optimiser's state")
SUMMARY_OPTIMIZERS = ("nero", "sgd", "adam", "lamb")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def final_table(results: TaskResults) -> str:
    """Return the scores at the best rates, what the paper has, and what a step costs."""
    rows = []
    for line in results.lines:
        rows.append(_row(results.task, line, line.best))
        if line.optimizer == "nero" and line.best.lr != NERO_LR and NERO_LR in line.arms:
            rows.append(_row(results.task, line, line.arms[NERO_LR], remark=" (out of the box)"))
    return table((*SCORE_HEADER, *COST_HEADER), rows)


def all_rates_table(results: TaskResults) -> str:
    """Return the scores at every rate."""
    rows = [
        _score_cells(results.task, line, arm)[:5]
        for line in results.lines
        for arm in line.arms.values()
    ]
    return table(SCORE_HEADER[:5], rows)


def summary_table(tasks: Mapping[str, Task], results: Mapping[str, TaskResults]) -> str:
    """Return paper and measurement below each other, for every task with published scores."""
    header = ("task", "metric", "whose", *(look(name).title for name in SUMMARY_OPTIMIZERS))
    rows: list[list[str]] = []
    for name in (task for task in ("mnist-deep", *TABLE_TASKS) if task in tasks):
        task = tasks[name]
        row, best = [], _best_published(task)
        for optimizer in SUMMARY_OPTIMIZERS:
            text = published_text(task, optimizer, with_ablation=False)
            row.append(f"**{text}**" if optimizer == best else text)
        rows.append([name, task.metric.label, "paper", *row])
        found = results.get(name)
        if found is None:
            rows.append(["", "", "ours", *["not run"] * len(SUMMARY_OPTIMIZERS)])
            continue
        scores = {optimizer: found.score(optimizer) for optimizer in SUMMARY_OPTIMIZERS}
        ran = {optimizer: score for optimizer, score in scores.items() if score}
        first = min(ran, key=lambda optimizer: ran[optimizer].badness, default=None)
        row = [_measured(found.line(optimizer)) for optimizer in SUMMARY_OPTIMIZERS]
        row = [
            f"**{text}**" if key == first else text for key, text in zip(scores, row, strict=True)
        ]
        rows.append(["", "", f"ours, {found.scale} scale", *row])
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


def _measured(line: Line | None) -> str:
    if line is None or line.score is None:
        return "not run"
    return f"{wording.in_words(line.score)} at lr {line.best.lr:g}"


def _best_published(task: Task) -> str | None:
    curves = {curve.optimizer: curve.mean[-1] for curve in best_curves(task, task.metric.name)}
    means = {
        optimizer: entries[0].mean
        for optimizer in SUMMARY_OPTIMIZERS
        if (entries := published(task, optimizer))
    } or curves
    choose = max if task.metric.higher_is_better else min
    return choose(means, key=lambda optimizer: means[optimizer]) if means else None


def _row(task: Task, line: Line, arm: Arm, *, remark: str = "") -> list[str]:
    cells = _score_cells(task, line, arm)
    cells[0] += remark
    state = arm.end("optimizer_state_bytes")
    return [
        *cells,
        wording.duration(arm.end("clock", "seconds_per_step")),
        wording.size(arm.end("clock", "peak_memory_bytes")),
        wording.size(state),
    ]


def _score_cells(task: Task, line: Line, arm: Arm) -> list[str]:
    title = look(line.optimizer).title + (f" ({line.variant})" if line.variant else "")
    score = arm.score
    unfinished = sum(run.status == "unfinished" for run in arm.runs)
    count = str(score.num_seeds if score else 0) + (
        f" (+{unfinished} unfinished)" if unfinished else ""
    )
    source = wording.NOTHING if line.variant else published_text(task, line.optimizer)
    return [title, f"{arm.lr:g}", count, wording.mean(score), wording.spread(score), source]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
